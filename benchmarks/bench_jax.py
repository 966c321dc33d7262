"""Packed rows from documents on disk to ``jax.Array``, end to end: what a JAX user waits for, beside Grain."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import grain
import jax
import numpy as np
from benchmarks.bench_packing import lognormal_lengths
from benchmarks.measure import beside, spread_case
from grain.experimental import FirstFitPackIterDataset

from lading import JaxLoader, PackedRows, TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer
from lading.source.tokens.write import TokenWriter

DOCUMENTS, ROW, BATCH, BINS = 20_000, 2_048, 8, 8
ALONE = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)


def cases() -> Iterable[dict[str, Any]]:
    """Measure batches of packed rows that are on the device."""
    draw = np.random.default_rng(0)
    lengths = np.minimum(lognormal_lengths(DOCUMENTS, 0), ROW)
    documents = [draw.integers(1, 250, n, dtype=np.int32) for n in lengths.tolist()]
    with tempfile.TemporaryDirectory() as folder:
        with TokenWriter(f"{folder}/store", ByteTokenizer()) as writer:
            for document in documents:
                writer.add(document)
        rows = PackedRows(TokenStore(f"{folder}/store"), ROW)
        us = beside(
            {"ours": placed(lambda: JaxLoader(rows, BATCH), 200), "peer": placed(lambda: packed(documents), 25)}
        )
    yield spread_case(f"packed rows to jax.Array, rows of {ROW}, batch {BATCH}, beside Grain", us, "us a batch")


def packed(documents: list[np.ndarray]) -> Iterator[Any]:
    """Yield Grain's batches of packed rows, on the device."""
    shuffled = grain.MapDataset.source([{"tokens": d} for d in documents]).shuffle(seed=0).to_iter_dataset(ALONE)
    filled = FirstFitPackIterDataset(shuffled, length_struct={"tokens": ROW}, num_packing_bins=BINS)
    for batch in filled.batch(BATCH):
        yield jax.device_put(batch)


def placed(make: Callable[[], Any], batches: int) -> Callable[[], float]:
    """Return a way: microseconds a batch of a fresh loader until its arrays are there, the first not counted."""

    def way() -> float:
        iterator = iter(make())
        jax.block_until_ready(next(iterator))
        start = time.perf_counter()
        count = sum(1 for batch in islice(iterator, batches) if jax.block_until_ready(batch))
        return (time.perf_counter() - start) / count * 1e6

    return way
