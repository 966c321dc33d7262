"""Hugging Face datasets: rows of token ids, shuffled, in the format people train with, beside two ways of torch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets
import numpy as np
import pyarrow as pa
import torch
from benchmarks.bench_batches import taking
from benchmarks.measure import beside, spread_case
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from lading import Loader

ROWS, LENGTH, CHUNK = 50_000, 256, 1_000  # chunks as large as the library writes them


def dataset() -> datasets.Dataset:
    """Return rows of 256 int32 in chunks of 1 000."""
    values = np.random.default_rng(0).integers(0, 50_000, ROWS * LENGTH, dtype=np.int32)
    whole = pa.ListArray.from_arrays(np.arange(0, ROWS * LENGTH + 1, LENGTH, dtype=np.int32), pa.array(values))
    chunks = [whole.slice(first, CHUNK) for first in range(0, ROWS, CHUNK)]
    table = pa.table({"input_ids": pa.chunked_array(chunks)})
    return datasets.Dataset(datasets.table.InMemoryTable(table)).with_format("torch")


def cases() -> Iterable[dict[str, Any]]:
    """Measure batches of 1 to 256 rows."""
    torch.set_num_threads(1)
    found = dataset()

    def sampled(size: int) -> DataLoader[Any]:
        sampler = BatchSampler(RandomSampler(found), size, drop_last=False)  # type: ignore[arg-type]
        return DataLoader(found, sampler=sampler, batch_size=None)  # type: ignore[arg-type]

    for size in (1, 32, 256):
        us = beside(
            {
                "ours": taking(lambda s=size: Loader(found, s), 6_000 // size + 100),
                "peer": taking(lambda s=size: DataLoader(found, s, shuffle=True), 1_500 // size + 20),
                "sampler": taking(lambda s=size: sampled(s), 1_500 // size + 20),
            },
            7,
        )
        yield spread_case(f"Hugging Face, rows of {LENGTH}, batch {size}, beside DataLoader", us, "us a batch")
        name = f"Hugging Face, rows of {LENGTH}, batch {size}, beside BatchSampler"
        yield spread_case(name, us, "us a batch", peer="sampler")
