"""The bill of a batch: its id and the names of what is in it.

    global batch of step 7     slot   0  1  2  3 | 4  5  6  7
                               rank   ──── 0 ──── ──── 1 ────
    bill of rank 1             slots 4..7, their dataset_idx and idx

A bill is made before anything is loaded (``plan.bill(step)``), travels to the
worker in place of bare indices, and comes back with the batch. ``SampleId``
names a sample, ``Place`` where it is used, ``Deviation`` a slot that did not
get what was planned.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import digest_of_slots, fold_int
from lading.identity.world import World
from lading.runtime.fields import html_table, shown_html

# Columns of a batch that say what its rows are: the sample's index, its dataset's number, an id of the user's, and
# whether the row only fills up.
IDX, DATASET_IDX, IS_PADDING, ID = "idx", "dataset_idx", "is_padding", "id"
NAME_COLUMNS = (IDX, DATASET_IDX, IS_PADDING)
SAMPLE_COLUMNS = (IDX, DATASET_IDX, ID)  # what a dataset can put on a single sample
LEFT_OUT = "by the collate function"  # why a sample was skipped that could be read


class SampleId(NamedTuple):
    """One training example: the dataset's number and the index inside it."""

    dataset: int
    index: int  # type: ignore[assignment]  # shadows tuple.index, which no name needs


class Place(NamedTuple):
    """Where a sample is used: an epoch, a step, a slot of its global batch (and the rank that holds the slot)."""

    epoch: int
    step: int
    slot: int
    rank: int | None = None


@dataclass(frozen=True)
class Deviation:
    """A slot that did not get the sample the plan says.

    Attributes:
        slot: Slot of the global batch.
        kind: ``skipped`` (unused) or ``substituted`` (another index of the same dataset took its place).
        dataset: Dataset number of the planned sample.
        index: Index of the planned sample.
        substitute: Index that was delivered instead, for ``substituted``.
        reason: Why, in one line.
    """

    slot: int
    kind: str
    dataset: int
    index: int
    substitute: int | None = None
    reason: str = ""


_ALONE = World()
_SHOWN = 20
T = TypeVar("T")


class _cached(functools.cached_property[T]):  # used like a function
    """Without the lock that Python has there up to 3.11: it takes longer than what is worked out."""

    if not TYPE_CHECKING:

        def __get__(self, bill, owner=None):
            if bill is None:
                return self
            found = vars(bill)[self.attrname] = self.func(bill)
            return found


def batch_id(key: int, epoch: int, step: int) -> str:
    """Return the id of a step's batch in a run whose plan has a key."""
    return f"e{epoch}-s{step}-{fold_int(key, step) >> 32:08x}"


def observed_id(digest: int, epoch: int, step: int, world: World = _ALONE) -> str:
    """Return the id of a batch that no plan knows: its digits are of the samples in it and their places.

    On several ranks none knows the samples of the others, and the id is the same on all: the digits are of the step.
    """
    return batch_id(digest if world.world_size == 1 else 0, epoch, step)


@dataclass(frozen=True, eq=False)
class Bill:
    """What one batch holds; one row per sample of this rank.

    Attributes:
        batch_id: The same on every rank and in every attempt. Its digits are of the plan; without one of the samples
            in it and their places, and on several ranks without a plan of the step alone: such an id is given as ""
            and worked out when it is asked for.
        step: Global batch number in the run.
        epoch: Epoch of the step.
        chunk: Chunk of the step, where the plan has chunks.
        position: Place of the global batch's slot 0 in the run's order, in samples.
        slots: Slot in the global batch of each row; a padding row repeats the slot of the row it copies.
        dataset_idx: Dataset number of each row.
        idx: Index inside its own dataset of each row.
        is_padding: True where the row only fills up (or its sample was skipped) and must not count.
        global_size: Samples in the global batch, all ranks together, padding left out.
        world: Whose rows these are.
        names: Names of the datasets, by number; empty where a number is unused.
        deviations: Rows of this bill that depart from the plan.
        source_rows: Source and row in it of each row, where samples are read under other numbers than their names;
            see ``source_idx`` and ``rows``.
        masked: (dataset, documents) of the documents whose tokens are padding in these rows.
    """

    batch_id: str
    step: int
    epoch: int
    chunk: int | None
    position: int
    slots: NDArray[np.int64]
    dataset_idx: NDArray[np.int32]
    idx: NDArray[np.int64]
    is_padding: NDArray[np.bool_]
    global_size: int
    world: World = _ALONE
    names: tuple[str, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    source_rows: tuple[NDArray[np.int32], NDArray[np.int64]] | None = None
    masked: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        if not self.batch_id:
            object.__delattr__(self, "batch_id")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> str:
            if name != "batch_id":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            found = observed_id(self.digest, self.epoch, self.step, self.world)
            object.__setattr__(self, name, found)
            return found

    def __len__(self) -> int:
        """Return the number of rows, padding included: the length of the batch."""
        return len(self.idx)

    @property
    def source_idx(self) -> NDArray[np.int32]:
        """Source each row is read from; the dataset's number where every source is one dataset."""
        return self.dataset_idx if self.source_rows is None else self.source_rows[0]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Row of its source that each row is read from; ``idx`` where every source is one dataset."""
        return self.idx if self.source_rows is None else self.source_rows[1]

    @_cached
    def is_real(self) -> NDArray[np.bool_]:
        """True where the row counts."""
        return ~self.is_padding

    @_cached
    def num_samples(self) -> int:
        """Rows that count, padding left out."""
        return len(self.idx) - int(np.count_nonzero(self.is_padding))

    @property
    def samples(self) -> list[SampleId]:
        """The names of the rows that count, in slot order."""
        real = self.is_real
        return [SampleId(d, i) for d, i in zip(self.dataset_idx[real].tolist(), self.idx[real].tolist(), strict=True)]

    @property
    def ids(self) -> list[tuple[str, int]]:
        """Dataset and index of each row that counts, by name: what to log beside a loss, or to pass to ``where``."""
        return [(self.names[d] if d < len(self.names) else str(d), i) for d, i in self.samples]

    @_cached
    def digest(self) -> int:
        """Additive digest of the rows that count."""
        return digest_of_slots(self.position, self.slots, self.dataset_idx, self.idx, self.is_padding)[0]

    @property
    def loss_weight(self) -> float:
        """Factor that makes DDP's mean over ranks the mean over samples.

        Multiply the mean loss over the rows that count by it: ranks may have unequal shares, and a rank may have
        only padding.
        """
        return self.num_samples * self.world.world_size / self.global_size if self.global_size else 0.0

    def counts(self) -> dict[int, int]:
        """Return the number of rows that count, by dataset number."""
        datasets, counts = np.unique(self.dataset_idx[self.is_real], return_counts=True)
        return dict(zip(datasets.tolist(), counts.tolist(), strict=True))

    def name_of(self, row: int) -> str:
        """Return the name of the dataset that a row's sample belongs to."""
        return self.names[int(self.dataset_idx[row])]

    def replace(self, **changes: Any) -> Bill:
        """Return a bill with some fields changed."""
        return dataclasses.replace(self, **changes)

    def select(self, rows: NDArray[np.int64], **changes: Any) -> Bill:
        """Return a bill of some of the rows, other fields changed as given."""
        read = self.source_rows
        chosen = {
            "slots": self.slots[rows],
            "dataset_idx": self.dataset_idx[rows],
            "idx": self.idx[rows],
            "is_padding": self.is_padding[rows],
            "source_rows": None if read is None else (read[0][rows], read[1][rows]),
        }
        return self.replace(**{**chosen, **changes})

    def share(self, world: World, *, full_size: int | None = None) -> Bill:
        """Return the rows of one rank of a whole (world size 1) bill.

        Args:
            world: Whose share.
            full_size: Slots of a complete global batch. Slots missing at the end then become padding rows, so that
                every rank delivers its full share at every step. None: no padding but the one row that a rank
                without any sample needs.
        """
        size = len(self.idx)
        start, stop = world.share(full_size or size)
        rows = np.arange(start, max(stop, start + 1), dtype=np.int64)
        beyond = rows >= size if stop > start else np.ones(1, dtype=bool)
        rows[beyond] = rows[beyond] % size
        is_padding = self.is_padding[rows] | beyond
        mine = set(self.slots[rows[~beyond]].tolist()) if self.deviations else set()
        deviations = tuple(d for d in self.deviations if d.slot in mine)
        return self.select(rows, is_padding=is_padding, world=world, deviations=deviations)

    def _repr_html_(self) -> str:
        """Return the rows as a table, for notebooks."""
        rows = zip(
            self.slots.tolist(), self.dataset_idx.tolist(), self.idx.tolist(), self.is_padding.tolist(), strict=True
        )
        cells = [
            (slot, self.names[d] if d < len(self.names) else str(d), index, "padding" if pad else "")
            for slot, d, index, pad in list(rows)[:_SHOWN]
        ]
        table = html_table(["slot", "dataset", "index", ""], cells, more=len(self) - _SHOWN)
        return f"<p>{shown_html(repr(self))}</p>{table}"

    def __repr__(self) -> str:
        of = f", rank {self.world.rank}/{self.world.world_size}" if self.world.world_size > 1 else ""
        return f"Bill({self.batch_id!r}, epoch={self.epoch}, step={self.step}, {self.num_samples} samples{of})"
