"""Compiled twins of ``splitmix``, bit for bit the same, and the exchange of generators' words.

Apart from ``random_state`` and ``splitmix``: Numba is optional, and opened at first use.
"""

from __future__ import annotations

import numba
import numpy as np

from lading.runtime.splitmix import GOLDEN, MULTIPLY_1, MULTIPLY_2

kernel = numba.njit(cache=True, nogil=True)

_M1, _M2, _GOLDEN = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2), np.uint64(GOLDEN)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


@kernel
def mix64(x):  # type: ignore[no-untyped-def]
    """``splitmix.mix64`` on one ``uint64``."""
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@kernel
def exchange(key, one, other, saved):  # type: ignore[no-untyped-def]
    """Move the words of two generators to ``saved`` and give them those of the stream of a key.

    Args:
        key: 64 bits.
        one: Words of the first generator.
        other: Words of the second, as many.
        saved: Room for both.
    """
    size = one.shape[0]
    for i in range(size):
        saved[i] = one[i]
        saved[size + i] = other[i]
    half = size // 2
    for i in range(half):
        x = mix64(np.uint64(key) + np.uint64(i + 1) * _GOLDEN)
        y = mix64(np.uint64(key) + np.uint64(half + i + 1) * _GOLDEN)
        one[2 * i], one[2 * i + 1] = np.uint32(x), np.uint32(x >> _S32)
        other[2 * i], other[2 * i + 1] = np.uint32(y), np.uint32(y >> _S32)


@kernel
def put_back(one, other, saved):  # type: ignore[no-untyped-def]
    """Undo ``exchange``."""
    size = one.shape[0]
    for i in range(size):
        one[i] = saved[i]
        other[i] = saved[size + i]
