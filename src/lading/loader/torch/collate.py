"""From samples or columns to the batch the model receives, names beside the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from lading.identity import Bill
from lading.loader.names import missing_names


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


def add_names(batch: Any, bill: Bill, names: Mapping[str, str], *, own: bool) -> Any:
    """Add the name columns to a dict batch; other batches have their names in the bill only.

    Args:
        batch: The collated batch.
        bill: What it holds.
        names: Key in the batch of each name column.
        own: Whether samples carry names themselves: then they must be the bill's.
    """
    if not isinstance(batch, dict):
        return batch
    for key, column in missing_names(batch, bill, names, own=own).items():
        # A copy: what the caller does to the batch must not reach the bill.
        batch[key] = torch.from_numpy(column.astype(bool if column.dtype == bool else np.int64))
    return batch
