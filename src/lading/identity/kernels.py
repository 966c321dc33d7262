"""Compiled twins of the hashes, bit for bit those of ``hashing`` and ``digest``."""

from __future__ import annotations

import numpy as np

from lading.identity.hashing import FOLD
from lading.runtime.kernels import kernel, mix64, short_kernel
from lading.runtime.splitmix import GOLDEN

__all__ = ["digest", "digest_of_slots", "fold", "kernel", "key_of_three", "mix64", "short_kernel"]

_ONE, _GOLDEN, _FOLD = np.uint64(1), np.uint64(GOLDEN), np.uint64(FOLD)


@kernel
def fold(h, x):  # type: ignore[no-untyped-def]
    """``hashing.fold`` on ``uint64`` scalars."""
    return mix64(h * _FOLD + mix64(x + _GOLDEN))


@short_kernel
def key_of_three(prefix, a, b, c):  # type: ignore[no-untyped-def]
    """``hashing.key64(a, b, c, prefix=prefix)`` of integers that are not negative."""
    return fold(fold(fold(np.uint64(prefix), np.uint64(a)), np.uint64(b)), np.uint64(c))


@kernel
def _sample_hash(position, dataset, index):  # type: ignore[no-untyped-def]
    place = mix64(np.uint64(position) + _GOLDEN)
    name = np.uint64(index) * _FOLD + np.uint64(dataset) * _GOLDEN
    return mix64(place ^ mix64(name + _ONE))


@kernel
def digest(positions, datasets, indices):  # type: ignore[no-untyped-def]
    """``digest.digest`` of three ``int64`` columns, as ``uint64``."""
    total = np.uint64(0)
    for i in range(positions.shape[0]):
        total += _sample_hash(positions[i], datasets[i], indices[i])
    return total


@short_kernel
def digest_of_slots(position, slots, datasets, indices, is_left_out):  # type: ignore[no-untyped-def]
    """``digest.digest_of_slots``, as ``uint64``."""
    total = np.uint64(0)
    for i in range(slots.shape[0]):
        if not is_left_out[i]:
            total += _sample_hash(position + slots[i], datasets[i], indices[i])
    return total
