"""SplitMix64, the mixing function under every hash and every order. Frozen by golden tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLY_1 = 0xBF58476D1CE4E5B9
MULTIPLY_2 = 0x94D049BB133111EB

U64 = NDArray[np.uint64]

_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_M1, _M2 = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2)


def mix64(x: U64) -> U64:
    """Scramble 64-bit values; a bijection in which every input bit reaches every output bit."""
    x = (x ^ (x >> _30)) * _M1
    x = (x ^ (x >> _27)) * _M2
    return x ^ (x >> _31)


def mix64_int(x: int) -> int:
    """``mix64`` on one Python integer."""
    x = ((x ^ (x >> 30)) * MULTIPLY_1) & MASK
    x = ((x ^ (x >> 27)) * MULTIPLY_2) & MASK
    return x ^ (x >> 31)
