"""Sums per dataset on JAX arrays, added up over the processes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from numpy.typing import NDArray

from lading.train.metrics import F64, dataset_sums as sums_here


def dataset_sums(
    values: jax.Array, datasets: NDArray[Any], num_datasets: int, *, reduce: bool = True
) -> tuple[F64, F64]:
    """Return the sum of values and the number of rows of each dataset, over all processes.

    Summed on the host in float64: on the device JAX has 32 bits unless configured otherwise.
    """
    table = np.stack(sums_here(host_rows(values).astype(np.float64), datasets, num_datasets))
    if reduce:
        table = add_over_processes(table)
    return table[0], table[1]


def host_rows(values: jax.Array) -> NDArray[Any]:
    """Return the rows of this process, of an array that may be spread over many."""
    if values.is_fully_addressable:
        return np.asarray(values)
    shards = {shard.index: shard for shard in values.addressable_shards}  # one copy of replicated rows
    ordered = sorted(shards.values(), key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in ordered])


def add_over_processes(table: NDArray[Any]) -> NDArray[Any]:
    """Add a table up over all processes, bit for bit: 64-bit floats travel as pairs of 32-bit integers."""
    if jax.process_count() == 1:
        return table
    words = np.ascontiguousarray(table).view(np.uint32)
    gathered = np.asarray(multihost_utils.process_allgather(words))
    found: NDArray[Any] = np.ascontiguousarray(gathered.reshape(-1, *words.shape)).view(np.float64).sum(axis=0)
    return found
