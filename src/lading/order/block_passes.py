"""Passes that keep neighbours together, for many datasets at once.

``BlockShuffle`` with a length and a key of its own for every element: blocks
in shuffled order, shuffled inside; the last block of a dataset may be short,
and everything after the place it is shuffled to moves up by what it lacks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold, text64
from lading.order.permutation import permute, unpermute

I64 = NDArray[np.int64]
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
