"""Read the rows of a bill, one gather per source and column.

bill    source_idx  0 1 1 0        source 0 rows ─▶ slots 0, 3
        rows        7 2 9 4        source 1 rows ─▶ slots 1, 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.hashing import key64, keys64
from lading.loader.torch.collate import as_tensors
from lading.source.reader import Reader, split_by_source

U64 = NDArray[np.uint64]


def sample_keys(seed: int, bill: Bill) -> U64:
    """Return a key for each row: a hash of (seed, epoch, source, row)."""
    return keys64(key64(seed, bill.epoch), bill.source_idx, bill.rows)


def gather_columns(readers: Sequence[Reader], bill: Bill, keys: U64 | None) -> Any:
    """Return the batch of a bill whose sources all give columns."""
    if len(readers) == 1:
        return as_tensors(_columns(readers[0], bill.rows, bill.epoch, keys))
    parts = []
    for number, rows in split_by_source(bill.source_idx, len(readers)):
        part_keys = None if keys is None else keys[rows]
        parts.append((number, rows, as_tensors(_columns(readers[number], bill.rows[rows], bill.epoch, part_keys))))
    if len(parts) == 1:
        return parts[0][2]
    return _interleave(parts, bill)


def gather_samples(readers: Sequence[Reader], bill: Bill, keys: U64 | None) -> list[Any]:
    """Return the samples of a bill in row order."""
    samples: list[Any] = [None] * len(bill)
    for number, rows in split_by_source(bill.source_idx, len(readers)):
        part_keys = None if keys is None else keys[rows]
        part = readers[number].samples(bill.rows[rows], bill.epoch, part_keys)
        for row, sample in zip(rows.tolist(), part, strict=True):
            samples[row] = sample
    return samples


def _columns(reader: Reader, indices: NDArray[np.int64], epoch: int, keys: U64 | None) -> Any:
    assert reader.columns is not None
    return reader.columns(indices, epoch, keys)


def _interleave(parts: Sequence[tuple[int, NDArray[Any], Any]], bill: Bill) -> Any:
    """Put the rows of several sources into one batch, in slot order."""
    structure = parts[0][2]
    if isinstance(structure, Mapping):
        for _, rows, part in parts[1:]:
            if not isinstance(part, Mapping) or part.keys() != structure.keys():
                raise _mismatch(bill, parts[0][1], sorted(structure), rows, _shape_of(part))
        return {name: _interleave([(n, r, p[name]) for n, r, p in parts], bill) for name in structure}
    if isinstance(structure, list):
        for _, rows, part in parts[1:]:
            if not isinstance(part, list) or len(part) != len(structure):
                raise _mismatch(bill, parts[0][1], f"{len(structure)} columns", rows, _shape_of(part))
        return [_interleave([(n, r, p[i]) for n, r, p in parts], bill) for i in range(len(structure))]
    if not isinstance(structure, torch.Tensor):
        mixed: list[Any] = [None] * len(bill)
        for _, rows, part in parts:
            for row, value in zip(rows.tolist(), part, strict=True):
                mixed[row] = value
        return mixed
    return _scatter(parts, structure, bill)


def _scatter(parts: Sequence[tuple[int, NDArray[Any], Any]], first: torch.Tensor, bill: Bill) -> torch.Tensor:
    out = first.new_empty((len(bill), *first.shape[1:]))
    for _, rows, part in parts:
        if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
            raise _mismatch(bill, parts[0][1], _shape_of(first), rows, _shape_of(part))
        out.index_copy_(0, torch.from_numpy(np.ascontiguousarray(rows)), part)
    return out


def _shape_of(part: Any) -> str:
    if isinstance(part, Mapping):
        return str(sorted(part))
    if isinstance(part, torch.Tensor):
        return f"{part.dtype} rows of shape {tuple(part.shape[1:])}"
    return f"{len(part)} columns" if isinstance(part, list) else type(part).__name__


def _mismatch(bill: Bill, first: NDArray[Any], expected: Any, second: NDArray[Any], found: Any) -> SourceError:
    names = [bill.name_of(int(rows[0])) for rows in (first, second)]
    return SourceError(
        f"datasets {names[0]!r} and {names[1]!r} do not fit into one batch: {expected} and {found}. "
        "Give them the same keys, dtypes and shapes, or pass a collate_fn."
    )
