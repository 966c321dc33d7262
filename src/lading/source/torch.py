"""Readers for torch's own datasets, so that they are gathered, not iterated."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset

from lading.errors import SourceError
from lading.order.dataset import Part
from lading.source.columns import MIN_BYTES, Buffers, Columns
from lading.source.protocol import Reader


class TensorColumn:
    """A tensor whose rows are gathered, on its device, into memory that is used again."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor, self._buffers = tensor, Buffers()
        self._row = tensor[:1].numel() * tensor.element_size() if len(tensor) else 0
        self._is_plain = tensor.requires_grad or tensor.device.type != "cpu"

    def select(self, indices: NDArray[np.int64]) -> torch.Tensor:
        """Gather rows."""
        rows, size = torch.from_numpy(np.ascontiguousarray(indices)), len(indices) * self._row
        if self._is_plain or size < MIN_BYTES:
            return self._tensor.index_select(0, rows.to(self._tensor.device))
        memory = self._buffers.memory(size)
        out = torch.from_numpy(memory).view(self._tensor.dtype).view(len(rows), *self._tensor.shape[1:])
        return torch.index_select(self._tensor, 0, rows, out=out)


def reader_of(source: Any, name: str, inner: Callable[[Any, str], Reader]) -> Reader | None:
    """Return the reader of a torch dataset that can be gathered, or None; ``inner`` finds that inside a ``Subset``."""
    if isinstance(source, IterableDataset):
        raise SourceError(
            f"dataset {name!r} is an IterableDataset, which has no random access: expected a map-style dataset. "
            "Use lading.TaggedIterableDataset, or lading.track on its DataLoader."
        )
    if isinstance(source, torch.Tensor):
        column = TensorColumn(source)
        return _reader(source, lambda indices: column.select(indices), source)
    # Subclasses may do more than select rows, so only the types themselves are taken apart.
    if type(source) is TensorDataset:
        columns = [TensorColumn(t) for t in source.tensors]
        return _reader(source, lambda indices: tuple(c.select(indices) for c in columns), source.tensors)
    if type(source) is Columns and all(isinstance(c, torch.Tensor) for c in source.columns.values()):
        named = {name: TensorColumn(c) for name, c in source.columns.items()}
        return _reader(source, lambda indices: {name: c.select(indices) for name, c in named.items()}, source.columns)
    if type(source) is Subset:
        return _subset_reader(source, inner(source.dataset, name))
    return None


def parts_of(source: Any, inner: Callable[[Any], tuple[Part, ...]]) -> tuple[Part, ...]:
    """Return the parts of a ``ConcatDataset``: its datasets, called ``[0]``, ``[1]`` ..., or their own parts."""
    if not isinstance(source, ConcatDataset):
        return ()
    found: list[Part] = []
    for place, dataset in enumerate(source.datasets):
        rows = len(dataset)  # type: ignore[arg-type]  # ConcatDataset asked for it
        for part in inner(dataset) or (Part(None, "", rows, rows),):
            found.append(dataclasses.replace(part, name=f"[{place}]{part.name}"))
    return tuple(found)


def _reader(source: Any, gather: Callable[[NDArray[np.int64]], Any], arrays: Any) -> Reader:
    return Reader(source, lambda indices, e, k: gather(indices), _rows(source), False, arrays)


def _subset_reader(source: Subset[Any], inner: Reader) -> Reader:
    chosen = np.asarray(source.indices, dtype=np.int64)
    columns = inner.columns
    return Reader(
        source,
        None if columns is None else (lambda indices, e, k: columns(chosen[indices], e, k)),
        lambda indices, e, k: inner.samples(chosen[indices], e, k),
        keyed=inner.keyed,
        layout=inner.layout,
    )


def _rows(source: Any) -> Any:
    return lambda indices, e, k: [source[i] for i in indices.tolist()]
