"""Where the draws of a block go: a shuffle of at most 1 024 slots.

    key of slot i   = hash(seed, block, i) with its low 10 bits replaced by i
    place of slot i = how many keys of the block are smaller

The low bits make ties impossible and say whose key it is, so sorting the keys
lists the slots in the order of their places.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold

BLOCK = 1024

_LOW = np.uint64(BLOCK - 1)


def slot_keys(block_key: int, size: int) -> NDArray[np.uint64]:
    """Return the sort key of each slot of a block."""
    slots = np.arange(size, dtype=np.uint64)
    return (fold(np.full(1, block_key, dtype=np.uint64), slots) & ~_LOW) | slots


def slots_by_place(block_key: int, size: int) -> NDArray[np.int64]:
    """Return the slot that stands at each place of a block."""
    return (np.sort(slot_keys(block_key, size)) & _LOW).astype(np.int64)


def place_of(block_key: int, size: int, slot: int) -> int:
    """Return the place of one slot; undoes ``slots_by_place``."""
    keys = slot_keys(block_key, size)
    return int(np.count_nonzero(keys < keys[slot]))


def next_block(position: int) -> int:
    """Return the first block boundary at or after a position.

    >>> next_block(1024), next_block(1025)
    (1024, 2048)
    """
    return -(-position // BLOCK) * BLOCK
