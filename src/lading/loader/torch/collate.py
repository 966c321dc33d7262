"""Torch's part of a batch: from samples or columns to tensors, names beside the data.

Samples are collated as torch does, with the same result. Two kinds are put together by code of our own: tensors are
stacked into memory that is used again, where torch takes fresh memory for each batch and in a worker a new file of
shared memory; numbers are written side by side at once, where torch looks at each of them twice.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data._utils.collate import (
    collate as torch_collate,
    collate_float_fn,
    collate_int_fn,
    collate_tensor_fn,
    default_collate_fn_map,
)

from lading.runtime.arrays import is_texts, side_by_side
from lading.source.columns import MIN_BYTES, Memory

_dtype = operator.attrgetter("dtype")


class Collate:
    """Collate as torch does; a dataclass keeps its type.

    >>> Collate()([{"x": 1}, {"x": 2}])
    {'x': tensor([1, 2])}
    """

    def __init__(self) -> None:
        self.memory = Memory()
        self._ours = {
            torch.Tensor: (collate_tensor_fn, self._stacked),
            int: (collate_int_fn, _integers),
            float: (collate_float_fn, _floats),
        }

    def __call__(self, samples: Sequence[Any]) -> Any:
        first, known = samples[0], default_collate_fn_map
        if type(first) is int and known[int] is collate_int_fn:
            return _integers(samples)
        if dataclasses.is_dataclass(first) and not isinstance(first, type):
            fields = [f.name for f in dataclasses.fields(first)]
            return dataclasses.replace(first, **{f: self([getattr(s, f) for s in samples]) for f in fields})
        # The user may have taught torch another way.
        ours: dict[Any, Any] = {kind: way for kind, (torchs, way) in self._ours.items() if known.get(kind) is torchs}
        return torch_collate(list(samples), collate_fn_map={**known, **ours})

    def _stacked(self, batch: Sequence[torch.Tensor], *, collate_fn_map: Any) -> torch.Tensor:
        first = batch[0]
        if first.is_nested or first.layout is not torch.strided:
            refused: torch.Tensor = collate_tensor_fn(batch)
            return refused
        size = first.nbytes * len(batch)
        if size < MIN_BYTES or not _are_plain(batch):
            return torch.stack(tuple(batch))
        out = torch.from_numpy(self.memory.of(size)).view(first.dtype).view(len(batch), *first.shape)
        try:
            return torch.stack(tuple(batch), out=out)
        except RuntimeError:  # a later one has a gradient; or shapes differ, which torch says in its own words
            return torch.stack(tuple(batch))


def _integers(batch: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    found = side_by_side(batch)
    return collate_int_fn(batch) if found is None else torch.from_numpy(found)


def _floats(batch: Sequence[Any], *, collate_fn_map: Any = None) -> torch.Tensor:
    found = side_by_side(batch)
    return collate_float_fn(batch) if found is None else torch.from_numpy(found)


def _are_plain(batch: Sequence[torch.Tensor]) -> bool:
    """Say whether the stack of some tensors has their bytes, in this process's memory."""
    first = batch[0]
    if first.device.type != "cpu" or first.requires_grad or first.is_quantized:
        return False
    return set(map(type, batch)) == {torch.Tensor} and set(map(_dtype, batch)) == {first.dtype}


def as_tensors(columns: Any) -> Any:
    """Return columns with arrays turned into tensors, in the containers torch's collate would use."""
    if isinstance(columns, Mapping):
        return {name: as_tensors(column) for name, column in columns.items()}
    if isinstance(columns, tuple | list) and not is_texts(columns):
        return [as_tensors(column) for column in columns]
    if isinstance(columns, np.ndarray) and columns.dtype.kind in "biufc":
        return torch.from_numpy(columns)
    return columns


class TorchArrays:
    """Tensors; a source that gives tensors is read on its device, and its rows stay there."""

    def __init__(self) -> None:
        self.collate = Collate()
        self.memory = self.collate.memory

    def columns(self, columns: Any) -> Any:
        return as_tensors(columns)

    def allocate(self, rows: int, like: torch.Tensor) -> torch.Tensor:
        return like.new_empty((rows, *like.shape[1:]))

    def over(self, memory: NDArray[Any], like: torch.Tensor) -> torch.Tensor:
        found = torch.from_numpy(memory)
        return found if found.dtype is like.dtype else found.view(like.dtype)

    def scatter(self, out: torch.Tensor, rows: NDArray[np.int64], part: torch.Tensor) -> None:
        out.index_copy_(0, torch.from_numpy(np.ascontiguousarray(rows)).to(out.device), part)

    def finish(self, batch: dict[str, Any], names: Mapping[str, NDArray[Any]]) -> None:
        for key, values in names.items():
            batch[key] = torch.from_numpy(values.astype(np.bool_ if values.dtype == np.bool_ else np.int64))
