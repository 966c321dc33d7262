"""Compiled twins of the hashes, bit for bit those of ``hashing`` and ``digest``."""

from __future__ import annotations

import numba
import numpy as np

from lading.identity.hashing import FOLD, GOLDEN, MULTIPLY_1, MULTIPLY_2

kernel = numba.njit(cache=True, nogil=True)

_ONE, _M1, _M2 = np.uint64(1), np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2)
_GOLDEN, _FOLD = np.uint64(GOLDEN), np.uint64(FOLD)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@kernel
def mix64(x):  # type: ignore[no-untyped-def]
    """``hashing.mix64`` on one ``uint64``."""
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@kernel
def fold(h, x):  # type: ignore[no-untyped-def]
    """``hashing.fold`` on ``uint64`` scalars."""
    return mix64(h * _FOLD + mix64(x + _GOLDEN))


@kernel
def digest(positions, datasets, indices):  # type: ignore[no-untyped-def]
    """``digest.digest`` of three ``int64`` columns, as ``uint64``."""
    total = np.uint64(0)
    for i in range(positions.shape[0]):
        place = mix64(np.uint64(positions[i]) + _GOLDEN)
        name = np.uint64(indices[i]) * _FOLD + np.uint64(datasets[i]) * _GOLDEN
        total += mix64(place ^ mix64(name + _ONE))
    return total
