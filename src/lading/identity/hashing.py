"""64-bit hashes for names, keys and digests, the same on every machine.

Everything random in Lading is one of these hashes of something that has a
name, so nothing depends on an RNG state that can be lost. The functions work
on NumPy ``uint64`` arrays (wrapping arithmetic); ``key64`` on Python values.
Frozen by golden tests: a change here changes every order ever planned.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from lading.runtime import compiled
from lading.runtime.splitmix import GOLDEN, MASK, U64, mix64, mix64_int

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
