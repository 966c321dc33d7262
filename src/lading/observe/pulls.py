"""What a DataLoader pulls from its sampler: noted, and given on with a slip.

    a pass resumed    5 2 9 | 7 1 | 4 ...     5 2 9 left out, 7 1 pulled ahead for workers; from 4 on as it was

What a sampler gives is copied when it is pulled: workers get it later.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lading.errors import ResumeError
from lading.observe.names import pulled_indices
from lading.observe.slips import Desk, SentIndices, Slip
from lading.runtime.random_state import capture, differing

T = TypeVar("T")


def _nothing() -> None:
    return None


class RecordedOrder:
    """Stands in a DataLoader's copy where its batch sampler (or sampler) stood.

    Args:
        order: What stood there.
        desk: Where the loader's slips lie.
        length: Length of the dataset; None: a stream, of which torch pulls nothing but how many samples it wants.
        ahead: Batches that are pulled ahead for workers; 0: there are none.

    Attributes:
        order: The sampler.
        passes: How often it was asked to begin.
        drawn_from: Names of the global generators that it drew from, where that was watched.
        watches: Whether to watch that.
    """

    def __init__(self, order: Any, desk: Desk, length: int | None, ahead: int) -> None:
        self.order = order
        self.desk, self.length, self.ahead = desk, length, ahead
        self.passes = self.skip = 0
        self.watches = False
        self.drawn_from: set[str] = set()
        self.rewind: Callable[[], None] | None = None
        self.caught_up: Callable[[], None] = _nothing
        self._latest: SamplerPulls | None = None

    def prepare(self, skip: int, rewind: Callable[[], None] | None, caught_up: Callable[[], None] | None) -> None:
        """Say how the next pass begins (``Recording.start``)."""
        self.skip, self.rewind, self.caught_up = skip, rewind, caught_up or _nothing

    def __iter__(self) -> SamplerPulls:
        if self.rewind is not None:
            self.rewind()
        self.passes += 1
        # Not a generator: a sampler that draws in __iter__ must draw now, as it would without us.
        begun = self.watched(lambda: iter(self.order))
        self._latest = (StatefulPulls if _has_state(begun) else SamplerPulls)(self, begun)
        return self._latest

    def __len__(self) -> int:
        return len(self.order)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("order", "state_dict", "load_state_dict"):
            raise AttributeError(name)
        return getattr(self.order, name)

    def take_skipped(self) -> list[NDArray[np.int64]]:
        """Return the indices that the newest pass left out, once."""
        skipped = [] if self._latest is None else self._latest.skipped
        if self._latest is not None:
            self._latest.skipped = []
        return skipped

    def watched(self, draw: Callable[[], T]) -> T:
        """Draw, and note which of the global generators that moved."""
        if not self.watches:
            return draw()
        before = capture()
        drawn = draw()
        self.drawn_from |= differing(before, capture())
        return drawn

    def given(self, pulled: Any, number: int, place: int) -> Any:
        """Return what the DataLoader gets instead of what was pulled."""
        if type(pulled) is not list and isinstance(pulled, Iterator):
            pulled = list(pulled)  # it could be read only once, and the dataset needs it
        rows = b"" if self.length is None else pulled_indices(pulled, self.length)
        if self.ahead:
            rows = rows if isinstance(rows, bytes) else rows.tobytes()
            return SentIndices(self.desk, copy.deepcopy(pulled), Slip(number, place, rows))
        self.desk.current = Slip(number, place, rows)
        return pulled


class StatefulOrder(RecordedOrder):
    """One of a sampler with a state, which torchdata's loader keeps: it stays the sampler's."""

    def state_dict(self) -> Any:
        """Return the sampler's state."""
        return self.order.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Move the sampler."""
        self.order.load_state_dict(state)


def recorded_order(order: Any, desk: Desk, *, length: int | None, ahead: int) -> RecordedOrder:
    """Return what stands in a loader's copy where its sampler stood."""
    return (StatefulOrder if _has_state(order) else RecordedOrder)(order, desk, length, ahead)


def _has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


class SamplerPulls(Iterator[Any]):
    """One pass over a sampler that notes what it gives, as the DataLoader pulls it.

    Attributes:
        inner: The sampler's iterator.
        skipped: Indices of the batches that were left out at its start.
    """

    def __init__(self, recorded: RecordedOrder, begun: Iterator[Any]) -> None:
        self.inner: Any = begun
        self.skipped: list[NDArray[np.int64]] = []
        self._recorded, self._number = recorded, recorded.passes
        self._to_skip, self._caught_up = recorded.skip, recorded.caught_up
        self._pulled = 0

    def __next__(self) -> Any:
        if self._to_skip:
            self._leave_out()
        if self._pulled == self._recorded.ahead:
            self._caught_up()
        try:
            pulled = next(self.inner) if self._pulled else self._next()
        except StopIteration:
            self._caught_up()
            raise
        self._pulled += 1
        return self._recorded.given(pulled, self._number, self._pulled - 1)

    def _leave_out(self) -> None:
        length = self._recorded.length or 0
        while self._to_skip:
            try:
                self.skipped.append(pulled_indices(self._next(), length))
            except StopIteration:
                raise ResumeError(
                    f"the sampler ended after {len(self.skipped)} batches, before the place the state was taken at. "
                    "The dataset or the sampler has changed: start the epoch anew, or restore them."
                ) from None
            self._to_skip -= 1

    def _next(self) -> Any:
        is_first = not self.skipped and not self._pulled
        return self._recorded.watched(lambda: next(self.inner)) if is_first else next(self.inner)


class StatefulPulls(SamplerPulls):
    """One whose iterator has a state."""

    def state_dict(self) -> Any:
        """Return the iterator's state."""
        return self.inner.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Move the iterator."""
        self.inner.load_state_dict(state)
