"""Compiled twins of the hashes, bit for bit those of ``hashing`` and ``digest``."""

from __future__ import annotations

import numpy as np

from lading.identity.hashing import FOLD
from lading.runtime.kernels import kernel, mix64
from lading.runtime.splitmix import GOLDEN

__all__ = ["digest", "fold", "kernel", "key_of_three", "mix64"]

_ONE, _GOLDEN, _FOLD = np.uint64(1), np.uint64(GOLDEN), np.uint64(FOLD)


@kernel
def fold(h, x):  # type: ignore[no-untyped-def]
    """``hashing.fold`` on ``uint64`` scalars."""
    return mix64(h * _FOLD + mix64(x + _GOLDEN))


@kernel
def key_of_three(prefix, a, b, c):  # type: ignore[no-untyped-def]
    """``hashing.key64(a, b, c, prefix=prefix)`` of integers that are not negative."""
    return fold(fold(fold(np.uint64(prefix), np.uint64(a)), np.uint64(b)), np.uint64(c))


@kernel
def digest(positions, datasets, indices):  # type: ignore[no-untyped-def]
    """``digest.digest`` of three ``int64`` columns, as ``uint64``."""
    total = np.uint64(0)
    for i in range(positions.shape[0]):
        place = mix64(np.uint64(positions[i]) + _GOLDEN)
        name = np.uint64(indices[i]) * _FOLD + np.uint64(datasets[i]) * _GOLDEN
        total += mix64(place ^ mix64(name + _ONE))
    return total
