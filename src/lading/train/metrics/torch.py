"""Sums per dataset on torch tensors, added up over the process group."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lading.identity.world import process_group

F64 = NDArray[np.float64]


def dataset_sums(
    values: torch.Tensor, datasets: NDArray[Any], num_datasets: int, *, reduce: bool = True
) -> tuple[F64, F64]:
    """Return the sum of values and the number of rows of each dataset, over all ranks."""
    owners = torch.from_numpy(np.ascontiguousarray(datasets, dtype=np.int64)).to(values.device)
    real = owners >= 0
    table = torch.zeros(2, num_datasets, dtype=torch.float64, device=values.device)
    chosen = values.detach()[real].to(torch.float64)
    table[0].index_add_(0, owners[real], chosen)
    table[1].index_add_(0, owners[real], torch.ones_like(chosen))
    if reduce:
        add_over_ranks(table)
    sums, counts = table.cpu().numpy()
    return sums, counts


def added_over_ranks(counts: NDArray[Any]) -> NDArray[Any]:
    """Return an array of counts added up over all ranks; alone, the same counts."""
    group = process_group()
    device = "cuda" if group is not None and group.get_backend() == "nccl" else "cpu"
    table = torch.from_numpy(counts.copy()).to(device)
    add_over_ranks(table)
    found: NDArray[Any] = table.cpu().numpy()
    return found


def add_over_ranks(table: torch.Tensor) -> None:
    """Add a tensor up over all ranks, in place; alone, nothing happens."""
    group = process_group()
    if group is not None and group.get_world_size() > 1:
        group.all_reduce(table)
