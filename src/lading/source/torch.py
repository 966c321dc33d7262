"""Readers for torch's own datasets, so that they are gathered, not iterated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, Subset, TensorDataset

from lading.errors import SourceError
from lading.source import reader

I64 = NDArray[np.int64]


def reader_of(source: Any, name: str) -> reader.Reader | None:
    """Return the reader of a torch dataset that can be gathered, or None."""
    if isinstance(source, IterableDataset):
        raise SourceError(
            f"dataset {name!r} is an IterableDataset, which has no random access: expected a map-style dataset. "
            "Use lading.TaggedIterableDataset, or lading.track on its DataLoader."
        )
    if isinstance(source, torch.Tensor):
        return reader.Reader(source, lambda indices, e, k: _select(source, indices), _rows(source))
    # Subclasses may do more than select rows, so only the type itself is taken apart.
    if type(source) is TensorDataset:
        tensors = source.tensors
        return reader.Reader(
            source,
            lambda indices, e, k: tuple(_select(t, indices) for t in tensors),
            lambda indices, e, k: [source[i] for i in indices.tolist()],
        )
    if type(source) is Subset:
        return _subset_reader(source, name)
    return None


def _subset_reader(source: Subset[Any], name: str) -> reader.Reader:
    inner = reader.reader_of(source.dataset, name)
    chosen = np.asarray(source.indices, dtype=np.int64)
    columns = inner.columns
    return reader.Reader(
        source,
        None if columns is None else (lambda indices, e, k: columns(chosen[indices], e, k)),
        lambda indices, e, k: inner.samples(chosen[indices], e, k),
        keyed=inner.keyed,
    )


def _rows(source: torch.Tensor) -> Any:
    return lambda indices, e, k: [source[i] for i in indices.tolist()]


def _select(tensor: torch.Tensor, indices: I64) -> torch.Tensor:
    rows = torch.from_numpy(np.ascontiguousarray(indices))
    return tensor.index_select(0, rows.to(tensor.device) if tensor.device.type != "cpu" else rows)
