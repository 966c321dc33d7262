"""Compiled twins of ``permutation``, bit for bit the same.

Fisher-Yates needs no table here: an element's way through the swaps is followed, at most 63 hashes. Of a network, the
rounds that every size has are worked out for several elements at once.
"""

from __future__ import annotations

import numba
import numpy as np

from lading.identity.kernels import fold, kernel, mix64
from lading.order.feistel import FEW, MORE_ROUNDS, ROUND_KEYS, ROUNDS, TABLE
from lading.runtime.splitmix import MULTIPLY_1, MULTIPLY_2

_M1, _M2, _TWO = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2), np.uint64(2)
_32, _63, _LOW = np.uint64(32), np.uint64(63), np.uint64(2**32 - 1)
_TABLE, _FEW = np.uint64(TABLE), np.uint64(FEW)

inlined = numba.njit(inline="always")  # rounds whose number is known are worked out for several elements at once


@kernel
def _partners(key, found):  # type: ignore[no-untyped-def]
    """Write the place that Fisher-Yates swaps with each place i: ``hash * (i + 1) >> 64``."""
    for i in range(TABLE):
        h, places = mix64(key + ROUND_KEYS[i]), np.uint64(i + 1)
        found[i] = ((h >> _32) * places + ((h & _LOW) * places >> _32)) >> _32


@kernel
def _shuffled(n, partners, x):  # type: ignore[no-untyped-def]
    """Return the element at position x after Fisher-Yates."""
    y = partners[x]
    for i in range(x + 1, n):
        y = np.uint8(i) if partners[i] == y else y
    return y


@kernel
def _unshuffled(n, partners, y):  # type: ignore[no-untyped-def]
    """Return the position of element y after Fisher-Yates."""
    for i in range(n - 1, 0, -1):
        if i == y:
            y = np.int64(partners[i])
        elif partners[i] == y:
            return i
    return y


@inlined
def _forth(left, right, side, key, first, stop):  # type: ignore[no-untyped-def]
    """Go through some rounds."""
    for k in range(first, stop):
        h = (right ^ (key + ROUND_KEYS[k])) * _M1
        h = (h ^ (h >> _32)) * _M2
        total = left + (((h >> _32) * side) >> _32)
        left = right
        right = min(total, total - side)  # unsigned: the difference wraps around where it is not wanted
    return left, right


@inlined
def _back(left, right, side, key, first, stop):  # type: ignore[no-untyped-def]
    """Undo ``_forth``."""
    for k in range(stop - 1, first - 1, -1):
        h = (left ^ (key + ROUND_KEYS[k])) * _M1
        h = (h ^ (h >> _32)) * _M2
        moved = ((h >> _32) * side) >> _32
        restored = min(right - moved, right - moved + side)  # unsigned, as above
        right = left
        left = restored
    return left, right


@kernel
def _permute_one(n, side, key, y):  # type: ignore[no-untyped-def]
    """Take turns until an element below n is found."""
    while y >= n:
        left, right = _forth(y // side, y % side, side, key, 0, MORE_ROUNDS if n <= _FEW else ROUNDS)
        y = left * side + right
    return y


@kernel
def _unpermute_one(n, side, key, y):  # type: ignore[no-untyped-def]
    """Take turns back until a position below n is found."""
    while y >= n:
        left, right = _back(y // side, y % side, side, key, 0, MORE_ROUNDS if n <= _FEW else ROUNDS)
        y = left * side + right
    return y


@kernel
def _keyed(n, key):  # type: ignore[no-untyped-def]
    """Return the keys with n folded in."""
    keys = np.empty_like(key)
    for i in range(key.shape[0]):
        keys[i] = fold(key[i], n[i])
    return keys


@kernel
def _halves(side, x):  # type: ignore[no-untyped-def]
    """Return ``x // side`` and the remainders; apart from the rounds, which are worked out for several at once."""
    left, right = np.empty_like(x), np.empty_like(x)
    for i in range(x.shape[0]):
        left[i] = x[i] // side[i]
        right[i] = x[i] - left[i] * side[i]
    return left, right


@kernel
def permute_each(n, side, key, x):  # type: ignore[no-untyped-def]
    """``permutation.permute`` on ``uint64`` columns of equal length."""
    keys, partners, known = _keyed(n, key), np.empty(TABLE, dtype=np.uint8), -1
    lefts, rights = _halves(side, x)
    for i in range(x.shape[0]):
        lefts[i], rights[i] = _forth(lefts[i], rights[i], side[i], keys[i], 0, ROUNDS)
    for i in range(x.shape[0]):
        if n[i] <= _TABLE:
            if known < 0 or keys[known] != keys[i]:
                _partners(keys[i], partners)
                known = i
            lefts[i] = _shuffled(np.int64(n[i]), partners, np.int64(x[i]))
            continue
        left, right = lefts[i], rights[i]
        if n[i] <= _FEW:
            left, right = _forth(left, right, side[i], keys[i], ROUNDS, MORE_ROUNDS)
        y = left * side[i] + right
        if y >= n[i]:
            y = _permute_one(n[i], side[i], keys[i], y)
        lefts[i] = y ^ ((keys[i] * _M2) >> _63) if y < _TWO else y
    return lefts.view(np.int64)


@kernel
def unpermute_each(n, side, key, y):  # type: ignore[no-untyped-def]
    """``permutation.unpermute`` on ``uint64`` columns of equal length."""
    keys, partners, known = _keyed(n, key), np.empty(TABLE, dtype=np.uint8), -1
    lefts, rights = _halves(side, np.where(y < _TWO, y ^ ((keys * _M2) >> _63), y))
    for i in range(y.shape[0]):
        if n[i] <= _FEW:
            lefts[i], rights[i] = _back(lefts[i], rights[i], side[i], keys[i], ROUNDS, MORE_ROUNDS)
    for i in range(y.shape[0]):
        lefts[i], rights[i] = _back(lefts[i], rights[i], side[i], keys[i], 0, ROUNDS)
    for i in range(y.shape[0]):
        if n[i] <= _TABLE:
            if known < 0 or keys[known] != keys[i]:
                _partners(keys[i], partners)
                known = i
            lefts[i] = _unshuffled(np.int64(n[i]), partners, np.int64(y[i]))
        else:
            lefts[i] = _unpermute_one(n[i], side[i], keys[i], lefts[i] * side[i] + rights[i])
    return lefts.view(np.int64)


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
