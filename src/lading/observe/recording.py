"""Watch a foreign DataLoader without touching what it does.

    sampler ──▶ pulls ──▶ DataLoader ──▶ batch        map style: what is pulled is noted, in order
                  └── noted ──────────────▶ names

    collate ──▶ Counted(batch, worker, count) ──▶ batch      iterable: counted where the batch is made

The sampler is never iterated by us: that would draw random numbers at another
time and change the batches. The dataset is never wrapped: people shard by
``get_worker_info().dataset``. We work on a shallow copy of the loader, so the
user's own stays as it is.

Nothing is pulled earlier, later or more often than without us, so the random
numbers a sampler draws are the same.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from lading.errors import LoaderError, ResumeError
from lading.identity import World
from lading.observe.dataloader import data_length, is_iterable, opened_copy
from lading.observe.names import (
    Namer,
    RowNames,
    StreamPlace,
    pulled_indices,
    stream_dataset_names,
    stream_names,
)


class SamplerPulls:
    """One pass over a sampler that notes what it gives, as the DataLoader pulls it."""

    def __init__(self, order: Any, length: int, skip: int) -> None:
        self._given = iter(order)
        self._length = length
        self._to_skip = skip
        self._ahead: deque[Any] = deque()
        self.skipped: list[NDArray[np.int64]] = []
        self.noted: deque[NDArray[np.int64]] = deque()

    def __iter__(self) -> SamplerPulls:
        return self

    def __next__(self) -> Any:
        if self._ahead:
            return self._ahead.popleft()
        while self._to_skip:
            self._to_skip -= 1
            self.skipped.append(pulled_indices(next(self._given), self._length))
        pulled = next(self._given)
        if isinstance(pulled, Iterator):
            pulled = list(pulled)  # it could be read only once, and the dataset needs it
        self.noted.append(pulled_indices(pulled, self._length))
        return pulled

    def prime(self) -> None:
        """Pull the first batch's indices now, while the random numbers stand where they did."""
        if not self.noted:
            try:
                self._ahead.append(next(self))
            except StopIteration:
                if self._to_skip:
                    raise ResumeError(_too_short(len(self.skipped))) from None


class RecordedOrder:
    """Stands in a DataLoader's copy where its batch sampler (or sampler) stood."""

    def __init__(self, order: Any, length: int) -> None:
        self.order = order
        self.length = length
        self.skip = 0
        self.rewind: Callable[[], None] | None = None
        self.latest: SamplerPulls | None = None

    def __iter__(self) -> SamplerPulls:
        if self.rewind is not None:
            self.rewind()
        # Not a generator: a sampler that draws in __iter__ must draw now, as it would without us.
        self.latest = SamplerPulls(self.order, self.length, self.skip)
        return self.latest

    def __len__(self) -> int:
        return len(self.order)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "order":
            raise AttributeError(name)
        return getattr(self.order, name)


def _too_short(found: int) -> str:
    return (
        f"the sampler ended after {found} batches, before the place the state was taken at. "
        "The dataset or the sampler has changed: start the epoch anew, or restore them."
    )


class Counted:
    """A batch and where in its worker's stream it was."""

    def __init__(self, batch: Any, place: StreamPlace) -> None:
        self.batch, self.place = batch, place

    def pin_memory(self, device: Any = None) -> Counted:
        """Pin the batch as torch would have pinned it without us."""
        return Counted(pin_memory(self.batch, device), self.place)  # type: ignore[no-untyped-call]


class CountedCollate:
    """The user's collate function, counting the samples that go through it in this process."""

    def __init__(self, collate_fn: Callable[[Any], Any], *, makes_batches: bool) -> None:
        self.collate_fn = collate_fn
        self.makes_batches = makes_batches
        self.count = 0

    def __call__(self, data: Any) -> Counted:
        size = len(data) if self.makes_batches else 1
        start = self.count
        self.count += size
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        return Counted(self.collate_fn(data), StreamPlace(worker, num_workers, start, size))


class Recording:
    """A DataLoader's copy whose batches come with names.

    Args:
        dataloader: Any torch DataLoader; it stays as it is.
        world: Who reads; only iterables need it.
        resolve: Turns indices of a map-style dataset into names; None: the names its samples carry, or would carry.
    """

    def __init__(
        self,
        dataloader: DataLoader[Any],
        world: World | None = None,
        resolve: Callable[[NDArray[np.int64]], RowNames] | None = None,
    ) -> None:
        _refuse(dataloader)
        self.dataloader = dataloader
        self.world = world or World()
        self.is_iterable = is_iterable(dataloader)
        namer = None if self.is_iterable else Namer(dataloader.dataset)
        self.dataset_names = stream_dataset_names(dataloader.dataset) if namer is None else namer.names
        self.dataset_lengths = () if namer is None else namer.lengths
        self._resolve = resolve or namer
        self.loader, parts = opened_copy(dataloader)
        self._parts = parts
        self._order: RecordedOrder | None = None
        if self.is_iterable:
            makes_batches = dataloader.batch_sampler is not None
            parts["collate_fn"] = CountedCollate(dataloader.collate_fn, makes_batches=makes_batches)
        else:
            place = "sampler" if dataloader.batch_sampler is None else "batch_sampler"
            self._order = RecordedOrder(getattr(dataloader, place), data_length(dataloader) or 0)
            parts[place] = self._order

    @property
    def starts_workers(self) -> bool:
        """Whether the next pass makes its workers (or runs without), which takes a random number as their seed."""
        return self._parts["_iterator"] is None

    def start(self, skip: int = 0, rewind: Callable[[], None] | None = None) -> RecordedPass:
        """Begin a pass, as ``iter(dataloader)`` would.

        Args:
            skip: Batches to leave out at the start, without loading them.
            rewind: Called whenever the sampler is asked to begin, to put random numbers back.
        """
        if self._order is None:
            return RecordedPass(self, iter(self.loader), None)
        self._order.skip, self._order.rewind, self._order.latest = skip, rewind, None
        begun = RecordedPass(self, iter(self.loader), self._order)
        self._order.rewind = None
        return begun

    def names(self, indices: NDArray[np.int64]) -> RowNames:
        """Return the names behind indices of a map-style dataset."""
        assert self._resolve is not None, "an iterable has no indices"
        return self._resolve(indices)


class RecordedPass:
    """One pass: batches, each with the names of its rows and, for iterables, the worker it came from."""

    def __init__(self, recording: Recording, batches: Iterator[Any], order: RecordedOrder | None) -> None:
        self._recording = recording
        self._batches = batches
        self._order = order
        self._pulls = order.latest if order is not None else None
        self._first_counts: dict[int, int] = {}
        self._workers = max(recording.dataloader.num_workers, 1)
        self._handed_out = 0

    def __iter__(self) -> RecordedPass:
        return self

    def __next__(self) -> tuple[Any, RowNames, int]:
        try:
            batch = next(self._batches)
        except StopIteration:
            self._check_end()
            raise
        except Exception:
            self._note(lost=True)
            raise
        if isinstance(batch, Counted):
            place = self._within_epoch(batch.place)
            recording = self._recording
            names = stream_names(recording.dataloader.dataset, batch.batch, place, recording.world)
            return batch.batch, names, place.worker
        worker = self._handed_out % self._workers  # torch gives batches to workers in turn
        return batch, self._recording.names(self._note()), worker

    @property
    def pulls(self) -> SamplerPulls | None:
        """What was pulled so far; None for iterables and before a lazy loader began."""
        if self._pulls is None and self._order is not None:
            self._pulls = self._order.latest
        return self._pulls

    def skipped(self) -> RowNames | None:
        """Draw the first batch's indices now, and return the names of what was left out; None where nothing was."""
        pulls = self.pulls
        if pulls is None:
            return None
        pulls.prime()
        names = self._recording.names(np.concatenate(pulls.skipped)) if pulls.skipped else None
        pulls.skipped.clear()
        return names

    def _note(self, *, lost: bool = False) -> NDArray[np.int64]:
        self._handed_out += 1
        pulls = self.pulls
        if pulls is not None and pulls.noted:
            return pulls.noted.popleft()
        if lost:
            return np.empty(0, np.int64)
        kind = type(self._recording.dataloader).__name__
        raise LoaderError(
            f"this {kind} gave a batch that its sampler was not asked for, so its samples have no names: expected "
            "one batch for each pull. Track the DataLoader inside it, or use lading.Loader."
        )

    def _within_epoch(self, place: StreamPlace) -> StreamPlace:
        # Persistent workers count on over epochs, and past batches that were not taken: the first batch of an epoch
        # says where the worker's count was.
        first = self._first_counts.setdefault(place.worker, place.start)
        return place._replace(start=place.start - first)

    def _check_end(self) -> None:
        left = len(self.pulls.noted) if self.pulls is not None else 0
        # A loader that stops early has pulled ahead; one that leaves batches out on its way has pulled more than that.
        ahead = self._workers * (self._recording.dataloader.prefetch_factor or 1)
        if left > ahead:
            kind = type(self._recording.dataloader).__name__
            warnings.warn(
                f"this {kind} pulled indices for {left} batches that it never gave: expected one batch for each pull. "
                "The names of its batches may belong to others; track the DataLoader inside it.",
                stacklevel=4,
            )


def _refuse(dataloader: Any) -> None:
    if hasattr(dataloader, "with_bills"):
        raise LoaderError(
            f"a {type(dataloader).__name__} has bills already. Give it the tracker or ledger itself: tracker=..."
        )
    if not isinstance(dataloader, DataLoader):
        raise LoaderError(
            f"found a {type(dataloader).__name__}: expected a torch DataLoader. Of other iterables, track dict batches "
            "whose rows carry numbers: track(batches, ids=...)."
        )
    if not getattr(dataloader, "in_order", True):
        raise LoaderError(
            "the DataLoader has in_order=False: batches then come in the order in which workers finish, and no "
            "record can say which samples a batch holds. Pass in_order=True."
        )
