"""From samples or columns to the batch the model receives, names beside the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

from lading.errors import SourceError
from lading.identity import Bill

NAME_KEYS = ("idx", "dataset_idx", "is_padding")


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


def add_names(batch: Any, bill: Bill, names: Mapping[str, str], source_name: str) -> Any:
    """Add the name columns to a dict batch; other batches have their names in the bill only.

    Args:
        batch: The collated batch.
        bill: What it holds.
        names: Key in the batch of each name column to add.
        source_name: Dataset to name in the error.
    """
    if not isinstance(batch, dict):
        return batch
    columns: dict[str, Any] = {"idx": bill.idx, "dataset_idx": bill.dataset_idx, "is_padding": bill.is_padding}
    for name, key in names.items():
        if key in batch:
            raise SourceError(
                f"dataset {source_name!r} has a key {key!r} of its own, which Lading adds to every batch. "
                f'Pass names={{"{name}": "sample_{name}"}} to choose another key, or names=False to add none.'
            )
        # A copy: what the caller does to the batch must not reach the bill.
        batch[key] = torch.from_numpy(columns[name].astype(bool if name == "is_padding" else np.int64))
    return batch
