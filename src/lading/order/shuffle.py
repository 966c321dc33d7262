"""The order of a run without weights: every epoch visits every sample once.

    full    one shuffle of all samples of all datasets together, key (seed, epoch)
    block   blocks of neighbours shuffled, then the samples inside each: locality on disk
    none    as they lie

Positions are absolute: position q belongs to epoch ``q // n``.

Passes that keep neighbours together, for many datasets at once.

``BlockShuffle`` with a length and a key of its own for every element: blocks
in shuffled order, shuffled inside; the last block of a dataset may be short,
and everything after the place it is shuffled to moves up by what it lacks.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold, key64, keys64, text64
from lading.order.permutation import permute, unpermute

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

SHUFFLES = ("full", "none", "block")
_READ_ON = 8192


@runtime_checkable
class Order(Protocol):
    """What a plan asks of the order behind it."""

    epoch_samples: int

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the absolute positions ``[start, stop)`` of one epoch."""
        ...

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the absolute positions in ``[start, stop)`` that hold a sample, in ascending order."""
        ...

    def counts(self, position: int) -> list[int]:
        """Return how many samples of each dataset lie before an absolute position."""
        ...


class Shuffled:
    """All samples of all datasets, once in every epoch."""

    def __init__(self, lengths: tuple[int, ...], seed: int, shuffle: str, block_samples: int) -> None:
        self.seed, self.shuffle, self.block_samples = seed, shuffle, block_samples
        self.epoch_samples = sum(lengths)
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        # Only a cache: replaced as a whole, so that threads may read at the same time.
        self._window: tuple[int, int, I32, I64] = (0, -1, np.empty(0, np.int32), np.empty(0, np.int64))
        self._last_stop = -1

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the absolute positions ``[start, stop)`` of one epoch."""
        low, high, dataset, index = self._window
        if not low <= start <= stop <= high:
            ahead = start == self._last_stop  # somebody reads on: a longer stretch costs hardly more than a short one
            end = (start // self.epoch_samples + 1) * self.epoch_samples
            low, high = start, max(stop, min(start + _READ_ON, end)) if ahead else stop
            dataset, index = self._computed(low, high)
            if ahead:
                self._window = (low, high, dataset, index)
        self._last_stop = stop
        return dataset[start - low : stop - low], index[start - low : stop - low]

    def _computed(self, start: int, stop: int) -> tuple[I32, I64]:
        epoch, offset = divmod(start, self.epoch_samples)
        offsets = np.arange(offset, offset + stop - start, dtype=np.int64)
        flat = self._flat(epoch, offsets)
        if len(self._starts) == 2:
            return np.zeros(len(flat), dtype=np.int32), flat
        dataset = np.searchsorted(self._starts, flat, side="right") - 1
        return dataset.astype(np.int32), flat - self._starts[dataset]

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the absolute positions in ``[start, stop)`` that hold a sample, in ascending order."""
        if stop <= start:
            return np.empty(0, dtype=np.int64)
        flat = int(self._starts[dataset]) + index
        epochs = np.arange(start // self.epoch_samples, (stop - 1) // self.epoch_samples + 1, dtype=np.int64)
        found: I64 = epochs * self.epoch_samples + self._offsets(epochs, flat)
        found = found[(found >= start) & (found < stop)]
        return found

    def counts(self, position: int) -> list[int]:
        """Return how many samples of each dataset lie before an absolute position."""
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
        if self.shuffle == "block":
            return self._blocks(epoch).elements(offsets)
        return permute(self.epoch_samples, key64(self.seed, epoch), offsets)

    def _offsets(self, epochs: I64, flat: int) -> Any:
        if self.shuffle == "none":
            return flat
        if self.shuffle == "block":
            element = np.array([flat], dtype=np.int64)
            return np.concatenate([self._blocks(int(e)).offsets(element) for e in epochs])
        return unpermute(self.epoch_samples, keys64(key64(self.seed), epochs), np.full(len(epochs), flat))

    def _blocks(self, epoch: int) -> BlockShuffle:
        return BlockShuffle(self.epoch_samples, self.block_samples, (self.seed, epoch))


class BlockShuffle:
    """A permutation that keeps neighbours together: blocks in shuffled order, shuffled inside.

    The last block may be short; everything after the place it is shuffled to
    moves up by what it lacks.
    """

    def __init__(self, n: int, block: int, key: tuple[int, ...]) -> None:
        self.n, self.block = n, block
        self.num_blocks = -(-n // block)
        self._outer, self._inner = key64(*key, "blocks"), key64(*key, "inside")
        last = unpermute(self.num_blocks, self._outer, np.array([self.num_blocks - 1]))
        self._short_start = int(last[0]) * block
        self._short_size = n - (self.num_blocks - 1) * block

    def elements(self, offsets: I64) -> I64:
        """Return the element at each position."""
        after = offsets >= self._short_start + self._short_size
        place, inside = np.divmod(offsets + after * (self.block - self._short_size), self.block)
        number = permute(self.num_blocks, self._outer, place)
        return number * self.block + permute(self._sizes(number), keys64(self._inner, number), inside)

    def offsets(self, elements: I64) -> I64:
        """Return the position of each element."""
        number, inside = np.divmod(elements, self.block)
        inside = unpermute(self._sizes(number), keys64(self._inner, number), inside)
        start = unpermute(self.num_blocks, self._outer, number) * self.block
        return start - (start > self._short_start) * (self.block - self._short_size) + inside

    def _sizes(self, numbers: I64) -> I64:
        return np.where(numbers == self.num_blocks - 1, self._short_size, self.block)


U64 = NDArray[np.uint64]

_OUTER, _INNER = np.uint64(text64("blocks")), np.uint64(text64("inside"))


class _Blocks(NamedTuple):
    """The blocks of each element's dataset."""

    number: I64
    outer: U64
    inner: U64
    short: I64  # samples of the last block
    short_start: I64  # where it was shuffled to


def permute_blocks(lengths: I64, keys: U64, positions: I64, block: int) -> I64:
    """Return the element at each position of a pass."""
    at = _blocks(lengths, keys, block)
    after = positions >= at.short_start + at.short
    place, inside = np.divmod(positions + after * (block - at.short), block)
    number = permute(at.number, at.outer, place)
    return number * block + permute(_sizes(at, number, block), fold(at.inner, number.astype(np.uint64)), inside)


def unpermute_blocks(lengths: I64, keys: U64, elements: I64, block: int) -> I64:
    """Return the position of each element in its pass; undoes ``permute_blocks``."""
    at = _blocks(lengths, keys, block)
    number, inside = np.divmod(elements, block)
    inside = unpermute(_sizes(at, number, block), fold(at.inner, number.astype(np.uint64)), inside)
    start = unpermute(at.number, at.outer, number) * block
    return start - (start > at.short_start) * (block - at.short) + inside


def _blocks(lengths: I64, keys: U64, block: int) -> _Blocks:
    count = -(-lengths // block)
    outer, inner = fold(keys, np.full(1, _OUTER)), fold(keys, np.full(1, _INNER))
    return _Blocks(count, outer, inner, lengths - (count - 1) * block, unpermute(count, outer, count - 1) * block)


def _sizes(at: _Blocks, number: I64, block: int) -> I64:
    return np.where(number == at.number - 1, at.short, block)
