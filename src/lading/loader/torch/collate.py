"""Torch's part of a batch: from samples or columns to tensors, names beside the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate


def collate(samples: Sequence[Any]) -> Any:
    """Collate as torch does; a dataclass keeps its type.

    >>> collate([{"x": 1}, {"x": 2}])
    {'x': tensor([1, 2])}
    """
    first = samples[0]
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        fields = [f.name for f in dataclasses.fields(first)]
        return dataclasses.replace(first, **{f: collate([getattr(s, f) for s in samples]) for f in fields})
    return default_collate(list(samples))


def as_tensors(columns: Any) -> Any:
    """Return columns with arrays turned into tensors, in the containers torch's collate would use."""
    if isinstance(columns, Mapping):
        return {name: as_tensors(column) for name, column in columns.items()}
    if isinstance(columns, tuple | list):
        return [as_tensors(column) for column in columns]
    if isinstance(columns, np.ndarray) and columns.dtype.kind in "biufc":
        return torch.from_numpy(columns)
    return columns


class TorchArrays:
    """Tensors; a source that gives tensors is read on its device, and its rows stay there."""

    def columns(self, columns: Any) -> Any:
        """Return what a source gave as tensors."""
        return as_tensors(columns)

    def allocate(self, rows: int, like: torch.Tensor) -> torch.Tensor:
        """Return an empty tensor with so many rows."""
        return like.new_empty((rows, *like.shape[1:]))

    def over(self, memory: NDArray[np.uint8], rows: int, like: torch.Tensor) -> torch.Tensor:
        """Return a tensor over ready memory."""
        return torch.from_numpy(memory).view(like.dtype).view(rows, *like.shape[1:])

    def scatter(self, out: torch.Tensor, rows: NDArray[np.int64], part: torch.Tensor) -> None:
        """Write the rows of one source to their places in a batch."""
        out.index_copy_(0, torch.from_numpy(np.ascontiguousarray(rows)).to(out.device), part)

    def collate(self, samples: list[Any]) -> Any:
        """Collate as torch does."""
        return collate(samples)

    def finish(self, batch: dict[str, Any], names: Mapping[str, NDArray[Any]]) -> None:
        """Add the name columns."""
        for key, values in names.items():
            batch[key] = torch.from_numpy(values.astype(np.bool_ if values.dtype == np.bool_ else np.int64))

    def nbytes(self, batch: Any) -> int:
        """Return the bytes of the tensors in a batch."""
        if isinstance(batch, torch.Tensor):
            return batch.numel() * batch.element_size()
        if isinstance(batch, dict):
            return sum(map(self.nbytes, batch.values()))
        return sum(map(self.nbytes, batch)) if isinstance(batch, list | tuple) else 0
