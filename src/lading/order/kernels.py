"""Compiled twins of ``permutation``, bit for bit the same."""

from __future__ import annotations

import numpy as np

from lading.identity.hashing import MULTIPLY_1, MULTIPLY_2
from lading.identity.kernels import kernel
from lading.order.feistel import ROUND_KEYS, ROUNDS

_M1, _M2, _TWO = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2), np.uint64(2)
_32, _63 = np.uint64(32), np.uint64(63)


@kernel
def permute_one(n, side, key, x):  # type: ignore[no-untyped-def]
    """Return the element at position x; all arguments ``uint64``."""
    while True:
        left = x // side
        right = x - left * side
        for i in range(ROUNDS):
            h = (right ^ (key + ROUND_KEYS[i])) * _M1
            h = (h ^ (h >> _32)) * _M2
            total = left + (((h >> _32) * side) >> _32)
            left = right
            right = total - side if total >= side else total
        x = left * side + right
        if x < n:
            return x ^ ((key * _M2) >> _63) if x < _TWO and n >= _TWO else x


@kernel
def unpermute_one(n, side, key, y):  # type: ignore[no-untyped-def]
    """Return the position of element y; all arguments ``uint64``."""
    if y < _TWO and n >= _TWO:
        y ^= (key * _M2) >> _63
    while True:
        left = y // side
        right = y - left * side
        for i in range(ROUNDS - 1, -1, -1):
            h = (left ^ (key + ROUND_KEYS[i])) * _M1
            h = (h ^ (h >> _32)) * _M2
            moved = ((h >> _32) * side) >> _32
            restored = right + side - moved if right < moved else right - moved
            right = left
            left = restored
        y = left * side + right
        if y < n:
            return y


@kernel
def permute(n, side, key, x):  # type: ignore[no-untyped-def]
    """``permutation.permute`` on ``uint64`` columns of one element or of the length of x."""
    out = np.empty(x.shape[0], dtype=np.int64)
    many_n, many_keys = n.shape[0] > 1, key.shape[0] > 1
    for i in range(x.shape[0]):
        j, k = i if many_n else 0, i if many_keys else 0
        out[i] = np.int64(permute_one(n[j], side[j], key[k], x[i]))
    return out


@kernel
def unpermute(n, side, key, y):  # type: ignore[no-untyped-def]
    """``permutation.unpermute`` on ``uint64`` columns of one element or of the length of y."""
    out = np.empty(y.shape[0], dtype=np.int64)
    many_n, many_keys = n.shape[0] > 1, key.shape[0] > 1
    for i in range(y.shape[0]):
        j, k = i if many_n else 0, i if many_keys else 0
        out[i] = np.int64(unpermute_one(n[j], side[j], key[k], y[i]))
    return out
