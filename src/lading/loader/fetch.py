"""Read what a bill names and make it a batch, in whichever process.

    WorkOrder (bill)  ─▶  Fetcher  ─▶  Delivery (batch, amended bill or failure)

The worker gets the bill, not bare indices: epoch and keys travel with it, so
nothing depends on which worker reads it or what it read before. A sample that
cannot be read is raised, skipped (its row becomes padding) or substituted by
the next index that can, by policy of its source.
"""

from __future__ import annotations

import dataclasses
import functools
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils.data._utils.pin_memory import pin_memory

from lading.errors import LadingError, SourceError
from lading.identity import Bill, Deviation
from lading.identity.hashing import key64
from lading.loader.torch.collate import add_names, collate
from lading.loader.torch.gather import gather_columns, gather_samples, sample_keys
from lading.order.parts import Parts
from lading.order.substitute import substitutes
from lading.runtime.random_state import isolated_rng
from lading.source.parts import provides_names
from lading.source.reader import Reader, reader_of

POLICIES = ("raise", "skip", "substitute")
_SUBSTITUTE_TRIES = 100


@dataclass(frozen=True)
class WorkOrder:
    """What a worker is asked for: a bill, and what must not be used as a substitute."""

    bill: Bill
    blocked: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """A sample that could not be read, in words that cross process borders."""

    dataset: int
    index: int
    file: str
    error: str
    trace: str
    source: int


@dataclass(frozen=True)
class Delivery:
    """A batch; its bill where it departs from the plan; or the failure instead of a batch."""

    batch: Any
    bill: Bill | None = None
    failure: Failure | None = None

    def pin_memory(self) -> Delivery:
        """Return the delivery with its tensors in pinned memory; called by torch's pinning thread."""
        return dataclasses.replace(self, batch=pin_memory(self.batch))  # type: ignore[no-untyped-call]


class Fetcher:
    """Make batches from work orders; the same in the process and in workers.

    Args:
        sources: The datasets by name.
        seed: Seed of the plan, for keys and substitutes.
        collate_fn: Makes a batch of samples; None: columns where the sources give them, else as torch collates.
        names: Key in a dict batch of each name column.
        policies: What to do about a bad sample, by number of the source.

    Attributes:
        parts: The datasets behind the sources, as the plan numbers them; a loader sets it with its plan.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        seed: int,
        collate_fn: Callable[[list[Any]], Any] | None,
        names: Mapping[str, str],
        policies: tuple[str, ...],
    ) -> None:
        self.sources, self.seed, self.collate_fn = sources, seed, collate_fn
        self.names, self.policies = names, policies
        self.parts: Parts | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("readers", "in_columns", "keyed", "own_names")}

    @functools.cached_property
    def readers(self) -> list[Reader]:
        """How each source is read; found anew in every process."""
        return [reader_of(source, name) for name, source in self.sources.items()]

    @functools.cached_property
    def in_columns(self) -> bool:
        """Whether batches are gathered column by column."""
        return self.collate_fn is None and all(r.columns is not None for r in self.readers)

    @functools.cached_property
    def keyed(self) -> bool:
        """Whether any source wants keys."""
        return any(r.keyed for r in self.readers)

    @functools.cached_property
    def own_names(self) -> bool:
        """Whether any source's samples carry names themselves."""
        return any(map(provides_names, self.sources.values()))

    def __call__(self, order: WorkOrder) -> Delivery:
        """Fetch a batch."""
        try:
            return Delivery(self._assemble(order.bill))
        except LadingError:
            raise
        except Exception as error:
            return self._recover(order, error)

    def _assemble(self, bill: Bill) -> Any:
        keys = sample_keys(self.seed, bill) if self.keyed else None
        if self.in_columns:
            batch = gather_columns(self.readers, bill, keys)
        else:
            with isolated_rng(key64(self.seed, "rng", bill.epoch, bill.step, int(bill.slots[0]))):
                batch = (self.collate_fn or collate)(gather_samples(self.readers, bill, keys))
        return add_names(batch, bill, self.names, own=self.own_names) if self.names else batch

    def _recover(self, order: WorkOrder, error: Exception) -> Delivery:
        bill = order.bill
        failures = [f for row in range(len(bill)) if (f := self._attempt(bill, row)) is not None]
        if not failures:
            raise SourceError(
                f"batch {bill.batch_id} of step {bill.step} could not be put together, although each of its samples "
                f"can be read alone: {type(error).__name__}: {error}. Check the collate_fn, and that samples have "
                "equal keys and shapes."
            ) from error
        for row, failure in failures:
            if self.policies[failure.source] == "raise":
                return Delivery(None, failure=failure)
            bill = self._replace(order, bill, row, failure, [r for r, _ in failures])
        return Delivery(self._assemble(bill), bill=bill)

    def _attempt(self, bill: Bill, row: int) -> tuple[int, Failure] | None:
        """Read one row alone; return what went wrong."""
        chosen = bill.select(np.array([row]))
        try:
            gather_samples(self.readers, chosen, sample_keys(self.seed, chosen))
        except Exception as error:
            source = int(chosen.source_idx[0])
            text = f"{type(error).__name__}: {error}"
            file = self.readers[source].file_of(int(chosen.rows[0]))
            sample = int(chosen.dataset_idx[0]), int(chosen.idx[0])
            return row, Failure(*sample, file, text, traceback.format_exc(), source)
        return None

    def _replace(self, order: WorkOrder, bill: Bill, row: int, failure: Failure, bad_rows: list[int]) -> Bill:
        """Return the bill with a bad row skipped or substituted."""
        slot, was_padding = int(bill.slots[row]), bool(bill.is_padding[row])
        good = next((r for r in range(len(bill)) if r not in bad_rows), None)
        chosen = np.arange(len(bill))
        if self.policies[failure.source] == "skip":
            if good is None:
                bill = self._substituted(order, bill, row, failure)
            else:
                chosen[row] = good
            is_padding = bill.is_padding.copy()
            is_padding[row] = True
            bill = bill.select(chosen, slots=bill.slots, is_padding=is_padding)
            deviation = Deviation(slot, "skipped", failure.dataset, failure.index, None, failure.error)
        else:
            bill = self._substituted(order, bill, row, failure)
            instead = int(bill.idx[row])
            deviation = Deviation(slot, "substituted", failure.dataset, failure.index, instead, failure.error)
        return bill if was_padding else bill.replace(deviations=(*bill.deviations, deviation))

    def _substituted(self, order: WorkOrder, bill: Bill, row: int, failure: Failure) -> Bill:
        """Return the bill with the first sample in a bad one's place that can be read."""
        assert self.parts is not None, "a loader sets the parts with its plan"
        blocked = order.blocked.get(failure.dataset, frozenset())
        part = self.parts.part(failure.dataset)
        tries = 0
        for candidate in substitutes(part.reach, self.seed, failure.index - part.first):
            if part.first + candidate in blocked:
                continue
            changed = self._with_index(bill, row, part.first + candidate)
            if self._attempt(changed, row) is None:
                return changed
            tries += 1
            if tries == _SUBSTITUTE_TRIES:
                break
        raise SourceError(
            f"sample {failure.index} of dataset {part.name!r} cannot be read ({failure.error}), "
            f"nor can {tries} others tried in its place. The dataset seems broken as a whole: check its files."
        )

    def _with_index(self, bill: Bill, row: int, index: int) -> Bill:
        """Return the bill with another sample of the same dataset in a row."""
        assert self.parts is not None
        idx = bill.idx.copy()
        idx[row] = index
        if bill.source_rows is None:
            return bill.replace(idx=idx)
        sources, rows = bill.source_idx, bill.rows.copy()
        rows[row] = self.parts.row_near(int(bill.dataset_idx[row]), index, int(rows[row]))
        return bill.replace(idx=idx, source_rows=(sources, rows))
