"""The shuffle inside a round: labels are permuted, a dataset's draws keep their order.

    round            the positions of one step; a step of more than 4 096 samples has several
    labels           a a a a b b c          the tree's counts, leaf by leaf
    key of slot i    hash(round key, i) with its low 12 bits replaced by i
    by key           b a a c a b a          which dataset comes at which place
    draws            b0 a0 a1 c0 a2 b1 a3   numbered in the order of the places

The low bits make ties impossible and say whose key it is, so sorting the keys
lists the slots in the order of their places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold

MAX_ROUND = 4096

_LOW = np.uint64(MAX_ROUND - 1)

I64 = NDArray[np.int64]


def slot_keys(round_key: int, size: int) -> NDArray[np.uint64]:
    """Return the sort key of each slot of a round."""
    slots = np.arange(size, dtype=np.uint64)
    return (fold(np.full(1, round_key, dtype=np.uint64), slots) & ~_LOW) | slots


def slots_by_place(round_key: int, size: int) -> I64:
    """Return the slot whose label comes to each place of a round."""
    return (np.sort(slot_keys(round_key, size)) & _LOW).astype(np.int64)


def place_of(round_key: int, size: int, first: int, number: int, k: int) -> int:
    """Return the place of the k-th draw of a label that has the slots ``[first, first + number)`` of a round."""
    keys = slot_keys(round_key, size)
    mine = np.sort(keys[first : first + number])[k]
    return int(np.count_nonzero(keys < mine))


def round_of(start: Any, size: Any, position: Any) -> tuple[Any, Any]:
    """Return the first position and the size of the round of a step that holds a position; integers or arrays.

    >>> round_of(1000, 10_000, 1000), round_of(1000, 10_000, 10_999)
    ((1000, 3333), (7666, 3334))
    """
    rounds = -(-size // MAX_ROUND)
    number = ((position - start + 1) * rounds - 1) // size
    low = start + number * size // rounds
    return low, start + (number + 1) * size // rounds - low


def rounds_of(starts: I64, sizes: I64) -> tuple[I64, I64]:
    """Return first position and size of each round of some steps."""
    if not len(sizes) or int(sizes.max()) <= MAX_ROUND:
        return starts, sizes
    rounds = -(-sizes // MAX_ROUND)
    step = np.repeat(np.arange(len(sizes)), rounds)
    number = np.arange(len(step)) - np.repeat(np.cumsum(rounds) - rounds, rounds)
    low = number * sizes[step] // rounds[step]
    return starts[step] + low, (number + 1) * sizes[step] // rounds[step] - low
