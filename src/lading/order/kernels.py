"""Compiled twins of ``permutation``, bit for bit the same."""

from __future__ import annotations

import numpy as np

from lading.identity.kernels import kernel
from lading.order.feistel import ROUND_KEYS, ROUNDS
from lading.runtime.splitmix import MULTIPLY_1, MULTIPLY_2

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
    return _unwalked(n, side, key, y)


@kernel
def _unwalked(n, side, key, y):  # type: ignore[no-untyped-def]
    """Walk back from y, the swap of elements 0 and 1 aside, until a position is found."""
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
def _halves(side, x):  # type: ignore[no-untyped-def]
    """Return ``x // side`` and the remainders; apart from the rounds, which are worked out for several at once."""
    left, right = np.empty(x.shape[0], dtype=np.uint64), np.empty(x.shape[0], dtype=np.uint64)
    for i in range(x.shape[0]):
        left[i] = x[i] // side[i]
        right[i] = x[i] - left[i] * side[i]
    return left, right


@kernel
def permute_each(n, side, key, x):  # type: ignore[no-untyped-def]
    """``permute_one`` on columns of equal length."""
    out, rights = _halves(side, x)
    for i in range(x.shape[0]):
        left, right = out[i], rights[i]
        for k in range(ROUNDS):
            h = (right ^ (key[i] + ROUND_KEYS[k])) * _M1
            h = (h ^ (h >> _32)) * _M2
            total = left + (((h >> _32) * side[i]) >> _32)
            left = right
            right = min(total, total - side[i])  # unsigned: the difference wraps around where it is not wanted
        out[i] = left * side[i] + right
    for i in range(x.shape[0]):
        if out[i] >= n[i]:
            out[i] = permute_one(n[i], side[i], key[i], out[i])
        elif out[i] < _TWO and n[i] >= _TWO:
            out[i] ^= (key[i] * _M2) >> _63
    return out.view(np.int64)


@kernel
def unpermute_each(n, side, key, y):  # type: ignore[no-untyped-def]
    """``unpermute_one`` on columns of equal length."""
    y = y.copy()
    for i in range(y.shape[0]):
        if y[i] < _TWO and n[i] >= _TWO:
            y[i] ^= (key[i] * _M2) >> _63
    out, rights = _halves(side, y)
    for i in range(y.shape[0]):
        left, right = out[i], rights[i]
        for k in range(ROUNDS - 1, -1, -1):
            h = (left ^ (key[i] + ROUND_KEYS[k])) * _M1
            h = (h ^ (h >> _32)) * _M2
            moved = ((h >> _32) * side[i]) >> _32
            restored = min(right - moved, right - moved + side[i])  # unsigned, as above
            right = left
            left = restored
        out[i] = left * side[i] + right
    for i in range(y.shape[0]):
        if out[i] >= n[i]:
            out[i] = _unwalked(n[i], side[i], key[i], out[i])
    return out.view(np.int64)


@kernel
def _column(values, size):  # type: ignore[no-untyped-def]
    return np.full(size, values[0]) if values.shape[0] == 1 else values


@kernel
def permute(n, side, key, x):  # type: ignore[no-untyped-def]
    """``permutation.permute`` on ``uint64`` columns of one element or of the length of x."""
    size = x.shape[0]
    return permute_each(_column(n, size), _column(side, size), _column(key, size), x)


@kernel
def unpermute(n, side, key, y):  # type: ignore[no-untyped-def]
    """``permutation.unpermute`` on ``uint64`` columns of one element or of the length of y."""
    size = y.shape[0]
    return unpermute_each(_column(n, size), _column(side, size), _column(key, size), y)
