"""Digests that add: the evidence of what a batch held.

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
from numpy.typing import NDArray

from lading.identity.hashing import FOLD
from lading.runtime import compiled
from lading.runtime.splitmix import GOLDEN, MASK, mix64


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
) -> int:
    """Return the additive digest of the slots of a batch that are not left out; its slot 0 has a position."""
    if compiled.enabled():
        found: int = compiled.kernels.digest_of_slots(position, slots, datasets, indices, is_left_out)
        return found
    kept = ~is_left_out
    return int(sample_hashes(position + slots[kept], datasets[kept], indices[kept]).sum(dtype=np.uint64))


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
