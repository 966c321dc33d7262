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

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold, key64, keys64, text64
from lading.order.permutation import permute, side, unpermute
from lading.runtime import compiled
from lading.runtime.processes import each_in_threads

if TYPE_CHECKING:
    from lading.order.sample_weights import Tables

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]

SHUFFLES = ("full", "none", "window")
_READ_ON = 8192
_COUNTED_AT_ONCE = 1 << 19


@runtime_checkable
class Order(Protocol):
    """What a plan asks of the order behind it."""

    epoch_samples: int

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the positions ``[start, stop)`` of one epoch."""
        ...

    def step_samples(self, start: int, size: int, first: int = 0, stop: int | None = None) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the slots ``[first, stop)`` of the step that begins at a position.

        Args:
            start: Position of the step's slot 0.
            size: Samples of the step.
            first: First slot asked for.
            stop: Slot to stop before; None: all of the step.
        """
        ...

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the positions in ``[start, stop)`` that hold a sample, in ascending order."""
        ...

    def counts(self, position: int) -> list[int]:
        """Return how many samples of each dataset lie before a position."""
        ...


class _Ahead(NamedTuple):
    """Samples of some steps in sequence, or of one."""

    start: int  # position of the first step
    asked: tuple[int, int, int]  # size of a step, first slot, and slot to stop before
    datasets: I32  # a row for each step
    indices: I64


class Shuffled:
    """The ``Order`` of all samples, once in every epoch; where they have weights as often as these say."""

    def __init__(self, lengths: tuple[int, ...], seed: int, shuffle: str, window: int, tables: Tables) -> None:
        self.seed, self.shuffle, self.window_samples, self.tables = seed, shuffle, window, tables
        self.epoch_samples = sum(lengths)
        self._length = np.array([self.epoch_samples], dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        # Only a cache: replaced as a whole, so that threads may read at the same time.
        self._ahead = _Ahead(-1, (0, 0, 0), np.empty((0, 0), np.int32), np.empty((0, 0), np.int64))
        self._counted = -1, np.empty(0, np.int64)  # another: a position, and what lies before it in its epoch

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        return self.step_samples(start, stop - start)

    def step_samples(self, start: int, size: int, first: int = 0, stop: int | None = None) -> tuple[I32, I64]:
        asked = (size, first, size if stop is None else stop)
        low, last, datasets, indices = self._ahead
        if last == asked and size:
            number, inside = divmod(start - low, size)
            if 0 <= number < len(indices) and not inside:
                return datasets[number], indices[number]
            in_sequence = number == len(indices) and not inside
        else:
            in_sequence = False
        count, steps = asked[2] - first, 1
        if in_sequence:  # many steps cost hardly more than one
            left = self.epoch_samples - start % self.epoch_samples
            steps = max(1, min(_READ_ON // max(count, 1), left // size))
        datasets, indices = self._computed(start + first, count, size, steps)
        self._ahead = _Ahead(start, asked, datasets, indices)
        return datasets[0], indices[0]

    def _computed(self, start: int, count: int, stride: int, steps: int) -> tuple[I32, I64]:
        """Return datasets and indices of so many positions from a start on, and of the same places of later steps."""
        epoch, offset = divmod(start, self.epoch_samples)
        offsets = np.arange(offset, offset + count, dtype=np.int64)
        if steps > 1:
            offsets = (np.arange(steps, dtype=np.int64)[:, None] * stride + offsets).reshape(-1)
        dataset, flat = self._owned(epoch, offsets)
        if self.tables:
            from lading.order.sample_weights import weighted_rows  # few runs weight their samples

            flat = weighted_rows(self.tables, dataset, flat, keys64(key64(self.seed, epoch), dataset))
        return dataset.reshape(steps, count), flat.reshape(steps, count)

    def _owned(self, epoch: int, offsets: I64) -> tuple[I32, I64]:
        """Return the datasets, and the places in these, that an epoch has at some offsets."""
        flat = permute_pass(self.shuffle, self._length, keys64(key64(self.seed, epoch)), offsets, self.window_samples)
        dataset = np.zeros(len(flat), dtype=np.int32)
        if len(self._starts) > 2 and compiled.enabled():
            compiled.kernels.owners(self._starts[:-1], flat, dataset)
        elif len(self._starts) > 2:
            dataset = (np.searchsorted(self._starts, flat, side="right") - 1).astype(np.int32)
            flat = flat - self._starts[dataset]
        return dataset, flat

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        if stop <= start:
            return np.empty(0, dtype=np.int64)
        from lading.order.sample_weights import weighted_places

        epochs = np.arange(start // self.epoch_samples, (stop - 1) // self.epoch_samples + 1, dtype=np.int64)
        owners, places = weighted_places(self.tables, dataset, index, keys64(key64(self.seed), epochs, dataset))
        epochs = epochs[owners]
        keys, flat = keys64(key64(self.seed), epochs), self._starts[dataset] + places
        offsets = unpermute_pass(self.shuffle, self._length, keys, flat, self.window_samples)
        found = epochs * self.epoch_samples + offsets
        return np.sort(found[(found >= start) & (found < stop)])

    def counts(self, position: int) -> list[int]:
        epoch, offset = divmod(position, self.epoch_samples)
        lengths = np.diff(self._starts)
        if len(lengths) == 1:
            return [position]
        if not offset:
            return [epoch * int(n) for n in lengths]
        if self._counted[0] != position:
            self._counted = position, self._before(epoch, offset, lengths)
        return [epoch * int(n) + int(inside) for n, inside in zip(lengths, self._counted[1], strict=True)]

    def _before(self, epoch: int, offset: int, lengths: I64) -> I64:
        """Count the samples of each dataset before an offset of an epoch, or those after it, if they are fewer."""
        if self.shuffle == "none":
            return np.clip(offset - self._starts[:-1], 0, lengths)
        is_late = 2 * offset > self.epoch_samples
        first, stop = (offset, self.epoch_samples) if is_late else (0, offset)
        found: list[I64] = [np.zeros(len(lengths), np.int64)]

        def count(low: int) -> None:
            found.append(self._between(epoch, low, min(low + _COUNTED_AT_ONCE, stop)))

        each_in_threads(count, range(first, stop, _COUNTED_AT_ONCE))
        total: I64 = np.sum(found, axis=0)
        return lengths - total if is_late else total

    def _between(self, epoch: int, first: int, stop: int) -> I64:
        """Count the samples of each dataset at some offsets of an epoch, one by one."""
        if self.shuffle == "full" and compiled.enabled():
            found, length = np.zeros(len(self._starts) - 1, np.int64), self.epoch_samples
            key, edge = int(keys64(key64(self.seed, epoch))[0]), int(side(length)[0])
            compiled.kernels.owner_counts(length, edge, key, self._starts[:-1], first, stop, found)
            return found
        datasets, _ = self._owned(epoch, np.arange(first, stop, dtype=np.int64))
        return np.bincount(datasets, minlength=len(self._starts) - 1)


def permute_pass(shuffle: str, lengths: I64, keys: U64, places: I64, window: int = 1) -> I64:
    """Return the element at each place of a pass, shuffled so; lengths and keys of one element, or one each."""
    if shuffle == "window":
        return permute_windows(lengths, keys, places, window)
    return places if shuffle == "none" else permute(lengths, keys, places)


def unpermute_pass(shuffle: str, lengths: I64, keys: U64, elements: I64, window: int = 1) -> I64:
    """Return the place of each element in its pass; undoes ``permute_pass``."""
    if shuffle == "window":
        return unpermute_windows(lengths, keys, elements, window)
    return elements if shuffle == "none" else unpermute(lengths, keys, elements)


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
