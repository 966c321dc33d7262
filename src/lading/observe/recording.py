"""Watch a foreign DataLoader without touching what it does.

    sampler ──▶ pulled: indices + slip ──▶ DataLoader ──▶ batch ──▶ its slip: names      map style
    stream  ──▶ counted where the batch is made: slip ──▶ batch ──▶ its slip: names      iterable

The sampler is never iterated by us: that would draw random numbers at another
time and change the batches. The dataset is never wrapped: people shard by
``get_worker_info().dataset``. We work on a shallow copy of the loader, so the
user's own stays as it is. How a slip travels with its rows: ``lading.observe.slips``.

Nothing is pulled earlier, later or more often than without us, so the random
numbers a sampler draws are the same.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from lading.errors import LoaderError
from lading.identity import World
from lading.observe.dataloader import data_length, is_iterable, opened_copy, rows_as_it_seems
from lading.observe.heads import Heads
from lading.observe.names import Namer, RowNames, own_names, stream_dataset_names, stream_names
from lading.observe.pulls import recorded_order
from lading.observe.slips import Desk, SentBatch, Slip, SlippedCollate, StreamPlace, pins


class Recording:
    """A DataLoader's copy whose batches come with names.

    Args:
        dataloader: Any torch DataLoader; it stays as it is.
        world: Who reads; only iterables need it.
        resolve: Turns indices of a map-style dataset into names; None: the names its samples carry, or would carry.
        by_order: Take a batch that the loader made itself for the one that was asked for first, instead of refusing it.

    Attributes:
        notes: Sentences about what was seen, for the record; who writes them there takes them out.
    """

    def __init__(
        self,
        dataloader: DataLoader[Any],
        world: World | None = None,
        resolve: Callable[[NDArray[np.int64]], RowNames] | None = None,
        *,
        by_order: bool = False,
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
        self._heads = Heads(dataloader.dataset)
        self.notes: list[str] = []
        self._has_looked = self._has_remarked = False
        self.desk = Desk(pins=pins(dataloader), keeps_all=by_order or parts is not self.loader.__dict__)
        makes_batches = dataloader.batch_sampler is not None
        place = "batch_sampler" if makes_batches else "sampler"
        self.order = recorded_order(
            getattr(dataloader, place),
            self.desk,
            length=None if self.is_iterable else data_length(dataloader) or 0,
            ahead=dataloader.num_workers * (dataloader.prefetch_factor or 0),
        )
        parts[place] = self.order
        parts["collate_fn"] = self._collate = SlippedCollate(
            dataloader.collate_fn,
            self.desk,
            type(dataloader.dataset).__name__,
            counts=self.is_iterable,
            makes_batches=makes_batches,
            is_sent=dataloader.num_workers > 0,
        )

    @property
    def starts_workers(self) -> bool:
        """Whether the next pass makes its workers (or runs without), which takes a random number as their seed."""
        return self._parts["_iterator"] is None

    @property
    def drawn_from(self) -> str:
        """The global generators that the order was drawn from, where there are several ranks."""
        return ", ".join(sorted(self.order.drawn_from))

    def start(
        self,
        skip: int = 0,
        rewind: Callable[[], None] | None = None,
        caught_up: Callable[[], None] | None = None,
    ) -> RecordedPass:
        """Begin a pass, as ``iter(dataloader)`` would.

        Args:
            skip: Batches to leave out at the start, without loading them.
            rewind: Called whenever the sampler is asked to begin, to put random numbers back.
            caught_up: Called when the loader has pulled what it had pulled when so many batches had been yielded.
        """
        self.order.watches = self.world.world_size > 1
        self.order.prepare(skip, rewind, caught_up)
        return RecordedPass(self, iter(self.loader))

    def names_in_stream(self, batch: Any, place: StreamPlace, kept: NDArray[np.int64] | None = None) -> RowNames:
        """Return the names of a batch of a stream: its own, where it carries some, else what is known of its rows."""
        own = own_names(self.dataloader.dataset, batch)
        if own is not None:
            return own
        if place.start == 0 and place.num_workers > 1 and (text := self._heads.look(place.worker, batch)) is not None:
            self.notes.append(text)
        return stream_names(place, self.world)._replace(kept=kept)

    def look_for_rows(self, batch: Any, names: RowNames) -> None:
        """Note, once, batches whose rows cannot be counted, and warn of a dataset that makes its batches itself.

        A bill counts each of the latter as one sample.
        """
        if self.dataloader.batch_sampler is not None:
            if not self._has_remarked and (remark := self._remark(batch, len(names.indices))):
                self._has_remarked = True
                self.notes.append(remark)
            return
        if len(names.indices) != 1 or self._has_looked:
            return
        self._has_looked, rows = True, rows_as_it_seems(batch)
        if rows > 1:
            text = (
                f"the {type(self.dataloader.dataset).__name__} gives whole batches, as it seems ({rows} rows in every "
                "array), and the DataLoader has batch_size=None: the books count each batch as one sample, named by "
                "its index or place. Let the DataLoader make the batches, or give rows numbers: track(..., ids=...)."
            )
            self.notes.append(text)
            warnings.warn(text, stacklevel=5)

    def _remark(self, batch: Any, rows: int) -> str:
        """Return why a batch could not be counted; an empty text where it was."""
        collate = self._collate
        if collate.is_sent or collate.counter.leaves_out:
            return collate.counter.remark(batch, rows)
        return collate.remark

    def names(self, indices: NDArray[np.int64]) -> RowNames:
        """Return the names behind indices of a map-style dataset."""
        assert self._resolve is not None, "an iterable has no indices"
        return self._resolve(indices)


class RecordedPass(Iterator[Any]):
    """One pass: batches, each with the names of its rows and the worker it came from."""

    def __init__(self, recording: Recording, batches: Iterator[Any]) -> None:
        self._recording = recording
        self._batches = batches
        self._first: tuple[Any, RowNames, int] | None = None
        self._workers = max(recording.dataloader.num_workers, 1)
        self._number: int | None = None

    def __next__(self) -> tuple[Any, RowNames, int]:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            batch = next(self._batches)
        except StopIteration:
            self._recording.desk.tidy()
            raise
        recording = self._recording
        batch, slip = (batch.batch, batch.slip) if isinstance(batch, SentBatch) else (batch, self._slip_of(batch))
        kept = None if slip.kept is None else np.frombuffer(slip.kept, np.int64)
        if isinstance(slip.rows, StreamPlace):
            names, worker = recording.names_in_stream(batch, slip.rows, kept), slip.rows.worker
        else:  # torch gives batches to workers in turn
            names, worker = recording.names(slip.indices), slip.place % self._workers
            names = names if kept is None else names._replace(kept=kept)
        recording.look_for_rows(batch, names)
        return batch, names, worker

    def catch_up(self) -> RowNames | None:
        """Fetch the first batch, and return the names of what was left out before it; None where nothing was."""
        try:
            self._first = next(self)
        except StopIteration:
            self._first = None  # the next call says so again
        skipped = self._recording.order.take_skipped()
        return self._recording.names(np.concatenate(skipped)) if skipped else None

    def _slip_of(self, batch: Any) -> Slip:
        desk, kind = self._recording.desk, type(self._recording.dataloader)
        slip, is_only = desk.take(batch)
        if slip is None and desk.keeps_all:
            slip = self._next_slip()
        if slip is None:
            raise LoaderError(
                f"this {kind.__name__} gave a batch ({type(batch).__name__}) that its collate_fn did not make, so its "
                "samples have no names: it was merged, moved or made anew. Do that in collate_fn or in the training "
                "loop, track the DataLoader inside it, or give rows numbers: track(..., ids=...)."
            )
        if not is_only and not _keeps_order(kind):
            raise LoaderError(
                f"this {kind.__name__} gave one object for several batches, and its __iter__ may change their order: "
                "nothing says which samples this one holds. Let collate_fn return a new object for each batch."
            )
        return slip

    def _next_slip(self) -> Slip | None:
        """Return the slip of the batch that comes now in a loader that makes objects of its own, in order."""
        desk, order = self._recording.desk, self._recording.order
        if self._number is None:
            self._number = order.passes  # begun by now, lazy ones, too
            for _ in range(int(getattr(self._recording.dataloader, "skip_batches", 0))):
                desk.take_first(self._number)
        return desk.take_first(self._number)


def _keeps_order(kind: Any) -> bool:
    """Say whether a class of loaders yields batches in the order they were asked for: torch's and torchdata's do."""
    stateful: Any = sys.modules.get("torchdata.stateful_dataloader")
    known = (DataLoader, *([] if stateful is None else [stateful.StatefulDataLoader]))
    return any(kind.__iter__ is other.__iter__ for other in known)


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
