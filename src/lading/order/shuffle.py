"""The order of a run without weights: every epoch visits every sample once.

    full     one shuffle of all samples of all datasets together, key (seed, epoch)
    window   windows of neighbours shuffled, then the samples inside each: locality on disk
    none     as they lie

Position q belongs to epoch ``q // n``.

A shuffle in windows takes a length and a key for every element, so that many
passes of many datasets are shuffled at once. The last window of a pass may be
short; everything after the place it is shuffled to moves up by what it lacks.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold, key64, keys64, text64
from lading.order.permutation import permute, unpermute

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]

SHUFFLES = ("full", "none", "window")
_READ_ON = 8192


@runtime_checkable
class Order(Protocol):
    """What a plan asks of the order behind it."""

    epoch_samples: int

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the positions ``[start, stop)`` of one epoch."""
        ...

    def step_samples(self, start: int, size: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices of the step that begins at a position and has so many samples."""
        ...

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the positions in ``[start, stop)`` that hold a sample, in ascending order."""
        ...

    def counts(self, position: int) -> list[int]:
        """Return how many samples of each dataset lie before a position."""
        ...


class Shuffled:
    """All samples of all datasets, once in every epoch."""

    def __init__(self, lengths: tuple[int, ...], seed: int, shuffle: str, window_samples: int) -> None:
        self.seed, self.shuffle, self.window_samples = seed, shuffle, window_samples
        self.epoch_samples = sum(lengths)
        self._length = np.array([self.epoch_samples], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        # Only a cache: replaced as a whole, so that threads may read at the same time.
        self._stretch: tuple[int, int, I32, I64] = (0, -1, np.empty(0, np.int32), np.empty(0, np.int64))
        self._last_stop = -1

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the positions ``[start, stop)`` of one epoch."""
        low, high, dataset, index = self._stretch
        if not low <= start <= stop <= high:
            ahead = start == self._last_stop  # in sequence: a longer stretch costs hardly more than a short one
            end = (start // self.epoch_samples + 1) * self.epoch_samples
            low, high = start, max(stop, min(start + _READ_ON, end)) if ahead else stop
            dataset, index = self._computed(low, high)
            if ahead:
                self._stretch = (low, high, dataset, index)
        self._last_stop = stop
        return dataset[start - low : stop - low], index[start - low : stop - low]

    def step_samples(self, start: int, size: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices of the step that begins at a position and has so many samples."""
        return self.samples(start, start + size)

    def _computed(self, start: int, stop: int) -> tuple[I32, I64]:
        epoch, offset = divmod(start, self.epoch_samples)
        offsets = np.arange(offset, offset + stop - start, dtype=np.int64)
        flat = self._flat(epoch, offsets)
        if len(self._starts) == 2:
            return np.zeros(len(flat), dtype=np.int32), flat
        dataset = np.searchsorted(self._starts, flat, side="right") - 1
        return dataset.astype(np.int32), flat - self._starts[dataset]

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the positions in ``[start, stop)`` that hold a sample, in ascending order."""
        if stop <= start:
            return np.empty(0, dtype=np.int64)
        flat = int(self._starts[dataset]) + index
        epochs = np.arange(start // self.epoch_samples, (stop - 1) // self.epoch_samples + 1, dtype=np.int64)
        found: I64 = epochs * self.epoch_samples + self._offsets(epochs, flat)
        found = found[(found >= start) & (found < stop)]
        return found

    def counts(self, position: int) -> list[int]:
        """Return how many samples of each dataset lie before a position."""
        epoch, offset = divmod(position, self.epoch_samples)
        lengths = np.diff(self._starts)
        if len(lengths) == 1:
            return [position]
        counts = [epoch * int(n) for n in lengths]
        step = 1 << 20
        for start in range(0, offset, step):
            dataset, _ = self.samples(epoch * self.epoch_samples + start, position - max(offset - start - step, 0))
            for d, extra in enumerate(np.bincount(dataset, minlength=len(lengths)).tolist()):
                counts[d] += extra
        return counts

    def _flat(self, epoch: int, offsets: I64) -> I64:
        if self.shuffle == "none":
            return offsets
        if self.shuffle == "window":
            keys = np.full(1, key64(self.seed, epoch), dtype=np.uint64)
            return permute_windows(self._length, keys, offsets, self.window_samples)
        return permute(self.epoch_samples, key64(self.seed, epoch), offsets)

    def _offsets(self, epochs: I64, flat: int) -> Any:
        if self.shuffle == "none":
            return flat
        keys, elements = keys64(key64(self.seed), epochs), np.full(len(epochs), flat, dtype=np.int64)
        if self.shuffle == "window":
            return unpermute_windows(self._length, keys, elements, self.window_samples)
        return unpermute(self.epoch_samples, keys, elements)


_OUTER, _INNER = np.uint64(text64("blocks")), np.uint64(text64("inside"))  # frozen with ORDER_VERSION


class _Windows(NamedTuple):
    """The windows of each element's pass."""

    number: I64
    outer: U64
    inner: U64
    short: I64  # samples of the last window
    short_start: I64  # where it was shuffled to


def permute_windows(lengths: I64, keys: U64, positions: I64, window: int) -> I64:
    """Return the element at each position of a pass; lengths and keys of one element, or one each."""
    at = _windows(lengths, keys, window)
    after = positions >= at.short_start + at.short
    place, inside = np.divmod(positions + after * (window - at.short), window)
    number = permute(at.number, at.outer, place)
    return number * window + permute(_sizes(at, number, window), fold(at.inner, number.astype(np.uint64)), inside)


def unpermute_windows(lengths: I64, keys: U64, elements: I64, window: int) -> I64:
    """Return the position of each element in its pass; undoes ``permute_windows``."""
    at = _windows(lengths, keys, window)
    number, inside = np.divmod(elements, window)
    inside = unpermute(_sizes(at, number, window), fold(at.inner, number.astype(np.uint64)), inside)
    start = unpermute(at.number, at.outer, number) * window
    return start - (start > at.short_start) * (window - at.short) + inside


def _windows(lengths: I64, keys: U64, window: int) -> _Windows:
    count = -(-lengths // window)
    outer, inner = fold(keys, np.full(1, _OUTER)), fold(keys, np.full(1, _INNER))
    last = np.broadcast_to(count - 1, np.broadcast_shapes(count.shape, outer.shape))
    return _Windows(count, outer, inner, lengths - (count - 1) * window, unpermute(count, outer, last) * window)


def _sizes(at: _Windows, number: I64, window: int) -> I64:
    return np.where(number == at.number - 1, at.short, window)
