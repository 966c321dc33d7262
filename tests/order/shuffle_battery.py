"""Statistics of shuffles over many keys, each a z-score: 0 for a shuffle as good as chance, whatever n.

    tables   counts of cells against their exact probabilities: element at a position, pairs, orders of eight
    columns  numbers of each key whose exact means are 0: sign of the permutation, low bits, distances at lags 1,
             ceil(sqrt n) and twice that (one by one, and as a histogram), serial correlation, batch means, agreement
             with the shuffle of the next key and with that of n + 1

A shuffle is a function ``(n, keys, positions) -> elements``, one row for each key. Keys come in a row, so that
"the next key" is the next seed, or the next epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import GOLDEN, MULTIPLY_1, MULTIPLY_2, fold, key64, keys64
from lading.order.permutation import permute, side

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
U64 = NDArray[np.uint64]
Shuffle = Callable[[int, U64, I64], I64]

_AT_ONCE = 1 << 21
_BATCH = 64
_NEARBY = 256  # positions that are compared with the shuffle of n + 1, where there are many keys; else all


def scores(shuffle: Shuffle, n: int, keys: U64) -> dict[str, float]:
    """Return the z-score of each statistic over some keys."""
    counts: dict[str, Any] = {}
    sums: dict[str, Any] = {}
    most, at_once = np.arange(n), max(_AT_ONCE // n, 2)
    for first in range(0, len(keys), at_once):
        mine = keys[first : first + at_once]
        y = shuffle(n, mine, most).astype(np.int32)
        for name, cells, shares in tables(y, n, len(keys)):
            seen = np.bincount(cells, minlength=len(shares))
            counts[name] = counts.get(name, 0) + np.stack([seen, shares * len(cells)])
        other = shuffle(n + 1, mine, most[:_NEARBY] if n < 1024 else most)
        for name, found in (*columns(y, n, len(keys)), ("next n", _agreement(y, other, n + 1))):
            moments = found.reshape(len(found), -1)
            row = len(found), moments.sum(axis=0), moments.T @ moments
            sums[name] = [a + b for a, b in zip(sums.get(name, (0, 0, 0)), row, strict=True)]
    tabled = {name: _table_z(*table) for name, table in counts.items()}
    return {**tabled, **{name: _means_z(*moments) for name, moments in sums.items()}}


def tables(y: NDArray[np.int32], n: int, total: int) -> Iterator[tuple[str, I64, F64]]:
    """Yield a name, the cell of each observation, and the exact share of each cell; ``total``: keys in all."""
    bins = _bins(n, total)
    sizes = np.bincount(np.arange(n) * bins // n, minlength=bins).astype(np.float64)
    pairs = (np.outer(sizes, sizes) - np.diag(sizes)).reshape(-1) / max(n * (n - 1), 1)
    root = int(side([n])[0])
    for p in sorted({0, 1, root, n // 2, n - 1} & set(range(n))):
        cell = y[:, p].astype(np.int64) * bins // n
        yield f"position {p}", cell, sizes / n
        q = (p + root) % n
        if q != p:
            yield f"pair {p} {q}", cell * bins + y[:, q].astype(np.int64) * bins // n, pairs
    few = max(m for m in range(1, 9) if m <= n and (m < 3 or math.factorial(m) * 9 <= total))
    code = np.zeros(len(y), dtype=np.int64)
    for i in range(1, few):  # how many of those before are smaller: the digits of an order
        code = code * (i + 1) + (y[:, :i] < y[:, i : i + 1]).sum(axis=1)
    yield f"order of {few}", code, np.full(math.factorial(few), 1 / math.factorial(few))


def columns(y: NDArray[np.int32], n: int, total: int) -> Iterator[tuple[str, F64]]:
    """Yield a name and one or more numbers for each key whose means are 0 for a perfect shuffle."""
    if n < 2:
        return
    even, odd, pairs = (n + 1) // 2, n // 2, n * (n - 1)
    yield "sign", _signs(y)
    low = (y & 1).astype(np.int8)
    matched = (low == (np.arange(n) & 1).astype(np.int8)).sum(axis=1)
    yield "low bits of positions", matched - (even**2 + odd**2) / n
    same = (low[:, 1:] == low[:, :-1]).sum(axis=1)
    yield "low bits of neighbours", same - (n - 1) * (even * (even - 1) + odd * (odd - 1)) / pairs
    root, bins = int(side([n])[0]), _bins(n, total)
    sizes = np.bincount(np.arange(n) * bins // n, minlength=bins) - (np.arange(bins) == 0)
    for lag in sorted({1, root, 2 * root} & set(range(n))):
        seen, far, back = _distances(y, lag, bins)
        yield f"distances at lag {lag}", seen - sizes * (n - lag) / (n - 1)
        yield f"distance {lag} at lag {lag}", far - (n - lag) ** 2 / pairs
        yield f"distance {-lag} at lag {lag}", back - (n - lag) ** 2 / pairs
    yield from _moments(y, n)
    yield "next key", _agreement(y[1:], y[:-1], n)


def _distances(y: NDArray[np.int32], lag: int, bins: int) -> tuple[F64, F64, F64]:
    """Return a histogram of the distances (mod n) at a lag for each key; how many are the lag, and minus the lag."""
    keys, n = y.shape
    apart = y[:, lag:].astype(np.int64) - y[:, :-lag]
    far, back = (apart == lag).sum(axis=1), (apart == -lag).sum(axis=1)
    cells = np.arange(keys)[:, None] * bins + apart % n * bins // n
    seen = np.bincount(cells.reshape(-1), minlength=keys * bins).reshape(keys, bins)
    return seen.astype(np.float64), far.astype(np.float64), back.astype(np.float64)


def _signs(y: NDArray[np.int32]) -> F64:
    """Return the sign of each permutation, +1 or -1, by its number of cycles: each is known by its least element."""
    n = y.shape[1]
    least = np.broadcast_to(np.arange(n, dtype=np.int32), y.shape)
    leap = y
    for _ in range(max(n - 1, 1).bit_length()):  # after k turns of 2**k elements
        least = np.minimum(least, np.take_along_axis(least, leap, axis=1))
        leap = np.take_along_axis(leap, leap, axis=1)
    cycles = (least == np.arange(n)).sum(axis=1)
    return 1.0 - 2.0 * ((n - cycles) % 2)


def _moments(y: NDArray[np.int32], n: int) -> Iterator[tuple[str, F64]]:
    u = ((y - (n - 1) / 2) / math.sqrt((n**2 - 1) / 12)).astype(np.float32)
    yield "serial correlation", np.einsum("kp,kp->k", u[:, 1:], u[:, :-1]).astype(np.float64) + 1
    yield "correlation with the next key", np.einsum("kp,kp->k", u[1:], u[:-1]).astype(np.float64)
    batches = n // _BATCH
    if batches:
        means = u[:, : batches * _BATCH].reshape(len(u), batches, _BATCH).mean(axis=2, dtype=np.float64)
        yield "batch means", (means**2).sum(axis=1) - batches * (n - _BATCH) / (_BATCH * (n - 1))


def _agreement(y: I64, other: I64, of: int) -> F64:
    """Return how many positions have the same element in two shuffles, the larger of so many elements, minus chance."""
    width = min(y.shape[1], other.shape[1])
    return (y[:, :width] == other[:, :width]).sum(axis=1) - width / of


def _bins(n: int, total: int) -> int:
    return min(n, 64, math.isqrt(total // 20))


def _normal(chi2: float, degrees: int) -> float:
    """Return chi-square as a z-score, its long tail included (Wilson and Hilferty)."""
    return 0.0 if degrees < 1 else ((chi2 / degrees) ** (1 / 3) - 1 + 2 / (9 * degrees)) / math.sqrt(2 / (9 * degrees))


def _table_z(counts: F64, expected: F64) -> float:
    possible = expected > 0
    if counts[~possible].any():
        return math.inf
    chi2 = ((counts[possible] - expected[possible]) ** 2 / expected[possible]).sum()
    return _normal(float(chi2), int(possible.sum()) - 1)


def _means_z(number: int, totals: F64, squares: F64) -> float:
    """Return how far means are from 0, by their own covariance."""
    means = totals / number
    spread, ways = np.linalg.eigh(squares / number - np.outer(means, means))
    along, real = means @ ways, spread > 1e-9
    if (np.abs(along[~real]) > 1e-6).any():
        return math.inf
    if len(means) == 1:
        return float(means[0] / math.sqrt(spread[0] / number)) if real[0] else 0.0
    return _normal(number * float((along[real] ** 2 / spread[real]).sum()), int(real.sum()))


def worst(found: dict[str, float]) -> tuple[str, float]:
    """Return the statistic that is furthest from chance."""
    return max(found.items(), key=lambda item: abs(item[1]))


def by_seed(number: int) -> U64:
    """Return the keys of epoch 0 for the seeds 0, 1, 2 ..."""
    return fold(keys64(0, np.arange(number)), np.zeros(1, dtype=np.uint64))


def by_epoch(number: int) -> U64:
    """Return the keys of the epochs 0, 1, 2 ... of seed 7."""
    return keys64(key64(7), np.arange(number))


def planned(n: int, keys: U64, positions: I64) -> I64:
    """The order that plans have."""
    at = np.tile(positions, len(keys))
    return permute(n, np.repeat(keys, len(positions)), at).reshape(len(keys), -1)


def numpys(n: int, keys: U64, positions: I64) -> I64:
    """NumPy's own shuffle, as a control."""
    generator = np.random.default_rng([n, int(keys[0])])
    rows = np.broadcast_to(np.arange(n, dtype=np.int32), (len(keys), n))
    return generator.permuted(rows, axis=1)[:, positions]


def of_version_1(n: int, keys: U64, positions: I64) -> I64:
    """The order of ORDER_VERSION 1: 8 rounds whatever n, which was no part of the key."""
    a, multiply_1, multiply_2 = side([n])[0], np.uint64(MULTIPLY_1), np.uint64(MULTIPLY_2)
    half, top = np.uint64(32), np.uint64(63)

    def turn(x: U64, of: U64) -> U64:
        left, right = x // a, x % a
        for k in range(8):
            h = (right ^ (of + np.uint64((GOLDEN * (k + 1)) % 2**64))) * multiply_1
            h = (h ^ (h >> half)) * multiply_2
            total = left + (((h >> half) * a) >> half)
            left, right = right, np.where(total >= a, total - a, total)
        return left * a + right

    of, x = np.repeat(keys, len(positions)), np.tile(positions.astype(np.uint64), len(keys))
    y = turn(x, of)
    while (outside := np.flatnonzero(y >= n)).size:
        y[outside] = turn(y[outside], of[outside])
    y = np.where((y < 2) & (n >= 2), y ^ ((of * multiply_2) >> top), y)
    return y.astype(np.int64).reshape(len(keys), -1)


def lcg(n: int, keys: U64, positions: I64) -> I64:
    """A bare linear congruential generator, for n a power of 2."""
    k = np.arange(len(keys))[:, None]
    return (positions * (4 * k + 5) + 12345 + k) % n


def multiply_only(n: int, keys: U64, positions: I64) -> I64:
    """A network of 5 rounds that only multiplies, for n = 2**14."""
    k = np.arange(len(keys))[:, None]
    left, right = positions >> 7, positions & 127
    for r in range(5):
        left, right = right, left ^ ((right * (2 * k + 2 * r + 3)) & 127)
    return left << 7 | right
