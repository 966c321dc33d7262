"""A hash of each sample's delivered bytes, for ``record="content"``.

    batch {"x": [B, 3] float32, "y": [B] int64}  ──▶  uint64 [B]

Equal bytes, equal hash, on every machine; one changed byte in one sample
changes that sample's hash and no other. Columns of numbers are hashed whole,
without a loop over samples; text and objects one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import LedgerError
from lading.identity.hashing import fold, key64, mix64, text64

U64 = NDArray[np.uint64]
_NAMES = frozenset({"idx", "dataset_idx", "is_padding"})


def content_hashes(batch: Any, rows: int) -> U64:
    """Return one hash per row of a batch.

    Args:
        batch: A dict, tuple or list of columns, or one column; each with ``rows`` rows. The name columns ``idx``,
            ``dataset_idx`` and ``is_padding`` of dict batches are left out: they say who, not what.
        rows: Rows of the batch.
    """
    total = np.zeros(rows, dtype=np.uint64)
    for name, column in sorted(_columns(batch).items()):
        total = fold(total ^ np.uint64(text64(name)), _column_hashes(name, column, rows))
    return total


def _columns(batch: Any) -> dict[str, Any]:
    if isinstance(batch, Mapping):
        return {str(name): column for name, column in batch.items() if name not in _NAMES}
    if isinstance(batch, (tuple, list)) and not (batch and np.isscalar(batch[0])):
        return {str(place): column for place, column in enumerate(batch)}
    return {"": batch}


def _column_hashes(name: str, column: Any, rows: int) -> U64:
    if hasattr(column, "detach"):  # a torch tensor, whose device memory NumPy cannot see
        column = column.detach().cpu()
    try:
        length = len(column)
    except TypeError:
        length = -1
    if length != rows:
        raise LedgerError(
            f"column {name!r} of the batch has {length if length >= 0 else 'no'} rows, its bill has {rows}: the "
            "content of each sample cannot be told apart. Pass the batch as it came from the loader."
        )
    array = None if isinstance(column, (list, tuple)) else np.asarray(column)
    if array is None or array.dtype == object:
        return np.array([_bytes_hash(repr(item).encode()) for item in column], dtype=np.uint64)
    return _array_hashes(np.ascontiguousarray(array).reshape(rows, -1))


def _array_hashes(array: NDArray[Any]) -> U64:
    width = array.shape[1] * array.dtype.itemsize
    padded = np.zeros((len(array), -(-width // 8) * 8), dtype=np.uint8)
    if width:
        padded[:, :width] = array.view(np.uint8).reshape(len(array), width)
    words = padded.view(np.uint64)
    keys = mix64(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(key64("content") | 1))
    sums = mix64(words ^ keys).sum(axis=1, dtype=np.uint64)
    return fold(sums, np.full(len(array), text64(f"{array.dtype.str}{array.shape[1]}"), dtype=np.uint64))


def _bytes_hash(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
