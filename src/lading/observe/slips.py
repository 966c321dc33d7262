"""A slip of paper travels with the rows of a batch, and says which they are.

    this process   sampler ──▶ indices + slip ─┐                                ┌─▶ batch   desk: this object, that slip
    a worker                                   └─▶ rows ──▶ collate ──▶ + slip ─┘

Indices and batches cross between processes by pickling. There the slip is put
on and taken off: the dataset gets the indices, and the loader's own code the
batch, as both would be without us. Whatever a loader does with its batches
then (leaves out, reorders, holds back), a batch is known as the object it is.
"""

from __future__ import annotations

import sys
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from lading.source.counting import RowCounter, check_samples


class StreamPlace(NamedTuple):
    """Where in its worker's stream a batch was: counted where the batch was made."""

    worker: int
    num_workers: int
    start: int
    size: int


class Slip(NamedTuple):
    """Which rows a batch holds.

    Attributes:
        number: Number of the pass.
        place: Place in the order in which the loader asked for the batches of the pass.
        rows: Indices of a map-style dataset, as bytes where they travel; or the place in a stream.
        kept: Places of the rows that the collate function kept, as bytes; None: all.
    """

    number: int
    place: int
    rows: bytes | NDArray[np.int64] | StreamPlace
    kept: bytes | None = None

    @property
    def indices(self) -> NDArray[np.int64]:
        """The indices of a map-style dataset."""
        assert not isinstance(self.rows, StreamPlace), "a stream has no indices"
        return np.frombuffer(self.rows, np.int64) if isinstance(self.rows, bytes) else self.rows


class Desk:
    """Where the slips of one loader lie, in this process.

    Attributes:
        key: The same in all processes of the loader.
        pins: Whether torch pins what arrives here, and so makes other objects of it.
        keeps_all: Whether slips are kept of batches that nobody holds any more; else the loader left those out.
        current: The slip of the indices that are being read in this process.
    """

    def __init__(self, key: str | None = None, *, pins: bool = False, keeps_all: bool = False) -> None:
        self.key = uuid.uuid4().hex if key is None else key
        self.pins, self.keeps_all = pins, keeps_all
        self._tidied_at = 8
        self.current: Slip | None = None
        self._waiting: dict[int, list[Any]] = {}  # by identity: the batch, which keeps its id, and its slips
        _DESKS[self.key] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return _desk, (self.key,)

    def put(self, batch: Any, slip: Slip) -> Any:
        """Note the slip of a batch, and return the batch."""
        if len(self._waiting) >= self._tidied_at:
            self.tidy()
            self._tidied_at = 8 + 2 * len(self._waiting)  # so that a loader may hold many at little cost
        self._waiting.setdefault(id(batch), [batch]).append(slip)
        return batch

    def take(self, batch: Any) -> tuple[Slip | None, bool]:
        """Return the slip of a batch, None where it has none; and whether it was the only one."""
        kept = self._waiting.get(id(batch))
        if kept is None:
            return None, True
        if len(kept) == 2:  # as a rule
            del self._waiting[id(batch)]
            return kept[1], True
        # Several batches may be one object, None for instance; workers may have been faster than each other.
        slip: Slip = min(kept[1:])
        self._drop(batch, slip)
        return slip, len(kept) == 1

    def take_first(self, number: int) -> Slip | None:
        """Return the slip of a pass that was asked for first, of those whose batches arrived."""
        waiting = [(slip, kept[0]) for kept in self._waiting.values() for slip in kept[1:] if slip.number == number]
        if not waiting:
            return None
        first, batch = min(waiting, key=lambda found: found[0])
        self._drop(batch, first)
        return Slip(*first)

    def _drop(self, batch: Any, slip: Slip) -> None:
        kept = self._waiting[id(batch)]
        kept[1:] = [other for other in kept[1:] if other is not slip]
        if len(kept) == 1:
            del self._waiting[id(batch)]

    def tidy(self) -> None:
        """Forget batches that nobody else holds: they can come no more."""
        if not self.keeps_all:
            self._waiting = {i: kept for i, kept in self._waiting.items() if sys.getrefcount(kept[0]) > _ALONE}


_DESKS: weakref.WeakValueDictionary[str, Desk] = weakref.WeakValueDictionary()  # what is unpickled finds its desk here
_ONE = [object()]
_ALONE = sys.getrefcount(_ONE[0])  # of something that is held by one list


def _desk(key: str) -> Desk:
    return _DESKS.get(key) or Desk(key)


class SentIndices:
    """Indices on their way to a worker, where they arrive as what they are."""

    def __init__(self, desk: Desk, indices: Any, slip: Slip) -> None:
        self._desk, self._indices, self._slip = desk, indices, slip

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self._desk, self._indices, self._slip)


def _received(desk: Desk, indices: Any, slip: Slip) -> Any:
    desk.current = slip
    return indices


class SentBatch:
    """A batch on its way from a worker, or to torch's pinning, with its slip; it arrives as what it is."""

    def __init__(self, desk: Desk, batch: Any, slip: Slip) -> None:
        self.desk, self.batch, self.slip = desk, batch, slip

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.desk, self.batch, self.slip)

    def pin_memory(self) -> Any:
        """Pin the batch as torch would have pinned it without us."""
        return self.desk.put(pin_memory(self.batch), self.slip)  # type: ignore[no-untyped-call]


def _arrived(desk: Desk, batch: Any, slip: Slip) -> Any:
    return SentBatch(desk, batch, slip) if desk.pins else desk.put(batch, slip)


class SlippedCollate:
    """The user's collate function; what it makes gets the slip of its rows.

    Args:
        collate_fn: The user's.
        desk: The loader's.
        counts: Whether the samples are a stream's and have to be counted.
        source: The type of the dataset.
        makes_batches: Whether it gets lists of samples, not single ones.
        is_sent: Whether this runs in a worker.

    Attributes:
        counter: What compares batches with the samples they are made of.
        remark: Why the batch made last, in this process, could not be counted.
        is_sent: Whether this runs in a worker.
    """

    def __init__(
        self,
        collate_fn: Callable[[Any], Any],
        desk: Desk,
        source: str,
        *,
        counts: bool,
        makes_batches: bool,
        is_sent: bool,
    ) -> None:
        self.collate_fn, self._desk, self._source = collate_fn, desk, source
        self.counter = RowCounter(collate_fn)
        self._counts, self._makes_batches, self.is_sent, self.remark = counts, makes_batches, is_sent, ""
        self._counted: dict[int, int] = {}  # samples in this process, by pass

    def __call__(self, data: Any) -> Any:
        slip = self._desk.current
        if slip is not None and self._counts:
            slip = self._counted_slip(slip, len(data) if self._makes_batches else 1)
        if slip is None:
            return self.collate_fn(data)  # for somebody who calls the function without the loader
        if not self._makes_batches:
            batch = self.collate_fn(data)
        else:
            batch, slip = self._counted_batch(data, slip)
        is_wrapped = self.is_sent or self._desk.pins
        return SentBatch(self._desk, batch, slip) if is_wrapped else self._desk.put(batch, slip)

    def _counted_batch(self, samples: list[Any], slip: Slip) -> tuple[Any, Slip]:
        """Return the batch of some samples, counted before and after, and its slip."""
        place = slip.rows
        indices = range(place.start, place.start + place.size) if isinstance(place, StreamPlace) else slip.indices
        check_samples(samples, indices, self._source)
        batch = self.collate_fn(samples)
        kept, self.remark = self.counter(batch, len(indices))
        return batch, slip if kept is None else slip._replace(kept=kept.tobytes())

    def _counted_slip(self, slip: Slip, size: int) -> Slip:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        start = self._counted.get(slip.number, 0)
        self._counted[slip.number] = start + size
        return slip._replace(rows=StreamPlace(worker, num_workers, start, size))


def pins(dataloader: Any) -> bool:
    """Say whether torch pins the batches of a DataLoader."""
    accelerator = getattr(torch, "accelerator", torch.cuda)
    return bool(dataloader.pin_memory) and bool(accelerator.is_available())
