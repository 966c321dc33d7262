"""64-bit hashes for names, keys and digests, the same on every machine.

Everything random in Lading is one of these hashes of something that has a
name, so nothing depends on an RNG state that can be lost. The functions work
on NumPy ``uint64`` arrays (wrapping arithmetic); ``key64`` on Python values. Under
all of them is SplitMix64. Frozen by golden tests: a change here changes every
order ever planned.

    digest of a step = sum over its slots of hash(position, dataset, index)   mod 2**64

Sums do not care who computed which part, so the ranks' digests of a step add
up to the step's, and the steps' to the run's: equal runs have equal digests
whatever their world size. A sample more, less or elsewhere changes the sum.

``fingerprint`` does the same for descriptions: equal content, equal fingerprint, on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lading.runtime import compiled

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


FOLD = 0xD6E8FEB86659FD93

_GOLDEN, _FOLD = np.uint64(GOLDEN), np.uint64(FOLD)


def as_u64(values: ArrayLike) -> U64:
    """Return values as a ``uint64`` array of at least one dimension (negative ones wrap)."""
    array = np.atleast_1d(np.asarray(values))
    return array.astype(np.uint64, copy=False)


def fold(h: U64, x: U64) -> U64:
    """Add one more part to a hash; the order of parts matters."""
    if compiled.enabled() and h.ndim == x.ndim == 1 and len(h) in (1, len(x)):
        total = np.empty(len(x), np.uint64)
        total[:] = h
        compiled.kernels.fold_rows(total, None, np.ascontiguousarray(x))
        return total
    return mix64(h * _FOLD + mix64(x + _GOLDEN))


def fold_int(h: int, x: int) -> int:
    """``fold`` on Python integers."""
    if compiled.enabled():
        found: int = compiled.kernels.fold(h & MASK, x & MASK)
        return found
    return mix64_int((h * FOLD + mix64_int((x + GOLDEN) & MASK)) & MASK)


def text64(text: str) -> int:
    """Return a stable 64-bit hash of a text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def key64(*parts: int | str, prefix: int = 0) -> int:
    """Return the 64-bit key of a tuple of names, or of one that continues a tuple whose key is ``prefix``.

    >>> key64(7, "substitute") == key64("substitute", prefix=key64(7)), key64(1, 2) == key64(2, 1)
    (True, False)
    """
    h = prefix
    for part in parts:
        h = fold_int(h, text64(part) if isinstance(part, str) else int(part) & MASK)
    return h


def keys64(prefix: int, *columns: ArrayLike) -> U64:
    """Return one key per row: ``key64`` continued from a prefix over columns of integers.

    ``keys64(key64(a), [b, c])`` equals ``[key64(a, b), key64(a, c)]``.
    """
    h: U64 = np.full(1, prefix, dtype=np.uint64)
    for column in columns:
        h = fold(h, as_u64(column))
    return h


def sample_hashes(positions: NDArray[Any], datasets: NDArray[Any], indices: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the hash of each (position, dataset, index)."""
    place = mix64(positions.astype(np.uint64) + np.uint64(GOLDEN))
    name = indices.astype(np.uint64) * np.uint64(FOLD) + datasets.astype(np.uint64) * np.uint64(GOLDEN)
    return mix64(place ^ mix64(name + np.uint64(1)))


def digest(positions: NDArray[Any], datasets: NDArray[Any], indices: NDArray[Any]) -> int:
    """Return the additive digest of the samples at these positions.

    >>> import numpy as np
    >>> whole = digest(np.array([0, 1]), np.array([0, 0]), np.array([5, 6]))
    >>> parts = [digest(np.array([p]), np.array([0]), np.array([i])) for p, i in [(1, 6), (0, 5)]]
    >>> whole == total_digest(parts)
    True
    """
    if compiled.enabled():
        columns = (np.ascontiguousarray(c, dtype=np.int64) for c in (positions, datasets, indices))
        found: int = compiled.kernels.digest(*columns)
        return found
    return int(sample_hashes(positions, datasets, indices).sum(dtype=np.uint64))


def digest_of_slots(
    position: int, slots: NDArray[Any], datasets: NDArray[Any], indices: NDArray[Any], is_left_out: NDArray[Any]
) -> tuple[int, int]:
    """Return the additive digest of the slots of a batch that are not left out, and their number.

    ``position`` is that of slot 0.
    """
    if compiled.enabled():
        found: tuple[int, int] = compiled.kernels.digest_of_slots(position, slots, datasets, indices, is_left_out)
        return found
    kept = ~is_left_out
    hashes = sample_hashes(position + slots[kept], datasets[kept], indices[kept])
    return int(hashes.sum(dtype=np.uint64)), len(hashes)


def digests_of_steps(
    position: int, datasets: NDArray[np.int32], indices: NDArray[np.int64], starts: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the digest of each step of samples that lie side by side from a position on; none of them is empty.

    Args:
        position: Of the first sample.
        datasets: Dataset of each sample.
        indices: Index of each in its dataset.
        starts: Where each step begins among them.
    """
    if compiled.enabled():
        out = np.empty(len(starts), np.uint64)
        compiled.kernels.digests(position, np.ascontiguousarray(datasets), np.ascontiguousarray(indices), starts, out)
        return out
    return np.add.reduceat(sample_hashes(position + np.arange(len(indices)), datasets, indices), starts)


def total_digest(digests: Iterable[int]) -> int:
    """Add digests of disjoint parts."""
    return sum(digests) & MASK


def as_signed(value: int) -> int:
    """Return a digest as the signed 64-bit integer that databases and Parquet like."""
    return value - (1 << 64) if value >= 1 << 63 else value


def as_unsigned(value: int) -> int:
    """Undo ``as_signed``."""
    return value & MASK


def fingerprint(description: Any) -> str:
    """Return 16 hex digits that stand for a JSON-able description.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
