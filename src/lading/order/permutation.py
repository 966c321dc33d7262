"""A shuffle without a table: a keyed bijection of 0..n-1 and its inverse.

    n to 64      Fisher-Yates: for i = n-1 .. 1 swap i and j, j = hash(key, i) * (i + 1) >> 64
    above        x  ─▶  (left, right) in a square of side a ≥ √n  ─▶  Feistel rounds, 12 to n = 2**16, then 8  ─▶  y
                        left, right = right, (left + hash(right, key, round)) mod a

The square holds at most 2√n + 1 cells too many; a walk that lands on one takes
another turn (cycle walking), which is rare. The round function is a 64-bit
hash, the modulus a multiplication. Rounds over an odd side make even
permutations only, so one bit of the key swaps elements 0 and 1 at the end.
Below 65 elements such a network is biased, and Fisher-Yates is exact. n is part
of the key: the orders of 50 000 and of 50 100 samples have nothing in common.
Nothing is kept, whatever n (to 2**63); any position costs the same, in both
directions.

Frozen by golden tests, its constants too: ``ORDER_VERSION`` changes only by decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lading.errors import PlanError
from lading.identity.hashing import GOLDEN, MASK, MULTIPLY_1, MULTIPLY_2, as_u64, fold, key64, mix64
from lading.runtime import compiled

TABLE = 64  # up to so many elements: Fisher-Yates
FEW = 1 << 16  # up to so many: 12 rounds, above 8
ROUNDS, MORE_ROUNDS = 8, 12
ROUND_KEYS = np.array([(GOLDEN * (i + 1)) & MASK for i in range(TABLE)], dtype=np.uint64)


ORDER_VERSION = 2
MAX_SAMPLES = 1 << 63
MAX_SEED = (1 << 64) - 1

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

_M1, _M2, _TWO = np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2), np.uint64(2)
_32, _63, _LOW = np.uint64(32), np.uint64(63), np.uint64(2**32 - 1)


class Permutation:
    """A keyed permutation of ``0..n-1``.

    Args:
        n: Number of elements, up to 2**63.
        key: What names the shuffle: a number, or a tuple of numbers and texts such as ``(seed, epoch)``.

    Example:
        >>> shuffled = Permutation(10, key=(7, 0))
        >>> sorted(shuffled(range(10)).tolist()) == list(range(10))
        True
        >>> shuffled.inverse(shuffled([3, 4])).tolist()
        [3, 4]
    """

    def __init__(self, n: int, key: int | str | tuple[int | str, ...]) -> None:
        if not 0 <= n <= MAX_SAMPLES:
            raise PlanError(f"a permutation of {n} elements is impossible: expected 0 to 2**63. Check the lengths.")
        self.n = int(n)
        self.key = key64(*key) if isinstance(key, tuple) else key64(key)

    def __call__(self, positions: ArrayLike) -> I64:
        """Return the element at each position."""
        return permute(self.n, self.key, positions)

    def inverse(self, elements: ArrayLike) -> I64:
        """Return the position of each element."""
        return unpermute(self.n, self.key, elements)


def permute(n: ArrayLike, keys: ArrayLike, positions: ArrayLike) -> I64:
    """Return the element at each position; every position may have its own ``n`` and key."""
    return _apply(n, keys, positions, inverse=False)


def unpermute(n: ArrayLike, keys: ArrayLike, elements: ArrayLike) -> I64:
    """Return the position of each element; undoes ``permute``."""
    return _apply(n, keys, elements, inverse=True)


def side(n: ArrayLike) -> U64:
    """Return the smallest a with ``a * a >= n``, exactly, for each n."""
    sizes = as_u64(n)
    if sizes.size == 1:
        return np.full(sizes.shape, math.isqrt(max(int(sizes[0]) - 1, 0)) + 1, dtype=np.uint64)
    root = np.floor(np.sqrt(sizes.astype(np.float64))).astype(np.uint64)
    root = np.maximum(root, np.uint64(1)) - np.uint64(1)
    for _ in range(3):
        root += (root * root < sizes).astype(np.uint64)
    return np.maximum(root, np.uint64(1))


def _apply(n: ArrayLike, keys: ArrayLike, values: ArrayLike, *, inverse: bool) -> I64:
    sizes, key_column = as_u64(n), as_u64(keys)
    x = np.asarray(values)
    shape = x.shape
    x = np.atleast_1d(x).astype(np.uint64)
    if x.size == 0:
        return np.empty(shape, dtype=np.int64)
    if (x >= sizes).any():
        bad = int(np.flatnonzero(x >= sizes)[0])
        raise PlanError(
            f"{int(np.atleast_1d(np.asarray(values)).flat[bad])} is not in a permutation of "
            f"{int(np.broadcast_to(sizes, x.shape).flat[bad])} elements: expected 0 to n-1."
        )
    if compiled.enabled():
        run = compiled.kernels.unpermute if inverse else compiled.kernels.permute
        found = np.empty(shape, dtype=np.int64)
        run(*map(np.ascontiguousarray, (sizes, side(sizes), key_column, x)), found)
        return found
    wide, each_key, _ = np.broadcast_arrays(sizes, fold(key_column, sizes), x)
    y = np.empty(x.shape, dtype=np.uint64)
    for low, high, way in _WAYS:
        mine = (wide > low) & (wide <= high)
        if mine.any():
            y[mine] = way(wide[mine], each_key[mine], x[mine], inverse)
    return y.astype(np.int64).reshape(shape)


def _tabled(sizes: U64, keys: U64, x: U64, inverse: bool) -> U64:
    """Look elements up in one table for each (n, key), made by Fisher-Yates for all of them at once."""
    pairs, number = np.unique(np.stack([sizes, keys], axis=1), axis=0, return_inverse=True)
    rows, table = np.arange(len(pairs)), np.tile(np.arange(TABLE), (len(pairs), 1))
    for i in range(int(pairs[:, 0].max()) - 1, 0, -1):
        h, places = mix64(pairs[:, 1] + ROUND_KEYS[i]), np.uint64(i + 1)
        j = (((h >> _32) * places + ((h & _LOW) * places >> _32)) >> _32).astype(np.int64)  # h * places >> 64
        j[pairs[:, 0] <= i] = i
        table[rows, i], table[rows, j] = table[rows, j], table[rows, i]
    found = (np.argsort(table, axis=1) if inverse else table)[number.reshape(-1), x.astype(np.int64)]
    return found.astype(np.uint64)


def _network(rounds: int) -> Callable[[U64, U64, U64, bool], U64]:
    """Return the way through a network of so many rounds."""

    def way(sizes: U64, keys: U64, x: U64, inverse: bool) -> U64:
        round_keys = ROUND_KEYS[:rounds]
        if inverse:
            return _walk(_unturn, sizes, keys, _swap(keys, x), round_keys[::-1])
        return _swap(keys, _walk(_turn, sizes, keys, x, round_keys))

    return way


_WAYS = ((0, TABLE, _tabled), (TABLE, FEW, _network(MORE_ROUNDS)), (FEW, MAX_SAMPLES, _network(ROUNDS)))


def _swap(keys: U64, y: U64) -> U64:
    return np.where(y < _TWO, y ^ ((keys * _M2) >> _63), y)


def _walk(turn: Callable[[U64, U64, U64, U64], U64], sizes: U64, keys: U64, x: U64, round_keys: U64) -> U64:
    sides = side(sizes)
    y = turn(x, sides, keys, round_keys)
    outside = np.flatnonzero(y >= sizes)
    while outside.size:
        y[outside] = turn(y[outside], sides[outside], keys[outside], round_keys)
        outside = outside[y[outside] >= sizes[outside]]
    return y


def _turn(x: U64, sides: U64, keys: U64, round_keys: U64) -> U64:
    left, right = np.divmod(x, sides)
    for round_key in round_keys:
        total = left + _scatter(right, keys + round_key, sides)
        left, right = right, np.where(total >= sides, total - sides, total)
    return left * sides + right


def _unturn(y: U64, sides: U64, keys: U64, round_keys: U64) -> U64:
    left, right = np.divmod(y, sides)
    for round_key in round_keys:
        moved = _scatter(left, keys + round_key, sides)
        left, right = np.where(right < moved, right + sides - moved, right - moved), left
    return left * sides + right


def _scatter(right: U64, key: U64, sides: U64) -> U64:
    h = (right ^ key) * _M1
    h = (h ^ (h >> _32)) * _M2
    return ((h >> _32) * sides) >> _32
