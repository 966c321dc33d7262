"""Beside Grain, in one process: one array, columns by element and by batches of indices, its order, its resume.

Apart from the rooms of torch: Grain loads JAX, and a process with JAX starts its workers in another way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import grain
import numpy as np
from benchmarks.bench_resume import BATCH, LATER, ROUNDS as RESUMES, Numbers, ms, named, ours
from benchmarks.measure import beside, case, spread_case
from grain.experimental import index_shuffle

from lading import Columns, NumpyLoader
from lading.order.permutation import Permutation

ROWS, WIDTH, NEGATIVES = 50_000, 384, 8
ALONE = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)  # quicker than threads for what is in memory
ROUNDS = 5


def taking(make: Callable[[], Any], batches: int) -> Callable[[], float]:
    """Return a way: microseconds a batch of a fresh loader, the first batch not counted."""

    def way() -> float:
        iterator = iter(make())
        next(iterator)
        start = time.perf_counter()
        count = sum(1 for _ in islice(iterator, batches))
        return (time.perf_counter() - start) / count * 1e6

    return way


def cases() -> Iterable[dict[str, Any]]:
    """Measure arrays, columns, the order."""
    yield from arrays()
    yield from columns()
    yield from orders()
    for step in (0, LATER):
        yield case(named(step, "beside Grain"), ours(step), resumed(step), "ms", higher_is_better=False)


def arrays() -> Iterator[dict[str, Any]]:
    """Yield one array, element by element in Grain, as people begin."""
    array = np.random.default_rng(0).random((ROWS, 16), dtype=np.float32)
    us = beside(
        {
            "ours": taking(lambda: NumpyLoader(array, 256), 150),
            "peer": taking(
                lambda: grain.MapDataset.source(array).shuffle(seed=0).batch(256).to_iter_dataset(ALONE), 20
            ),
        },
        ROUNDS,
    )
    yield spread_case("one array, batch 256, beside Grain", us, "us a batch")


class Table:
    """A row of every column, or the rows of a batch of indices."""

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.data = data

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, rows: Any) -> dict[str, np.ndarray]:
        return {name: column[rows] for name, column in self.data.items()}


def columns() -> Iterator[dict[str, Any]]:
    """Yield columns of 13.85 kB a sample."""
    draw = np.random.default_rng(0)
    wide = {name: draw.random((ROWS, WIDTH), dtype=np.float32) for name in ("question", "target", "steering")}
    scalars = {name: draw.random(ROWS, dtype=np.float32) for name in ("relevance", "distance", "a", "b")}
    data = {**wide, "negatives": draw.random((ROWS, NEGATIVES // 2, WIDTH), dtype=np.float32), **scalars}
    table = Table(data)
    for size in (64, 256):
        us = beside(
            {
                "ours": taking(lambda s=size: NumpyLoader(Columns(**data), s), 10_000 // size),
                "elements": taking(
                    lambda s=size: grain.MapDataset.source(table).shuffle(seed=0).batch(s).to_iter_dataset(ALONE),
                    2_000 // size,
                ),
                "indices": taking(
                    lambda s=size: (
                        grain.MapDataset.range(ROWS)
                        .shuffle(seed=0)
                        .batch(s)
                        .map(table.__getitem__)
                        .to_iter_dataset(ALONE)
                    ),
                    2_000 // size,
                ),
            },
            ROUNDS,
        )
        yield spread_case(f"columns, batch {size}, beside Grain by element", us, "us a batch", peer="elements")
        yield spread_case(f"columns, batch {size}, beside Grain by indices", us, "us a batch", peer="indices")


def orders() -> Iterator[dict[str, Any]]:
    """Yield the nanoseconds of an index."""
    for n in (10**6, 10**8):
        permutation, block, single = Permutation(n, (1, 2)), np.arange(1024) + n // 2, range(n // 2, n // 2 + 1000)
        ns = beside(
            {
                "ours": lambda p=permutation, x=block: _ns(lambda: [p(x) for _ in range(100)], 100 * 1024),
                "peer": lambda n=n, x=single: _ns(
                    lambda: [index_shuffle(index=i, max_index=n - 1, seed=1, rounds=4) for i in x], 1000
                ),
            },
            ROUNDS,
        )
        yield spread_case(f"permutation of {n:.0e}, beside Grain's index_shuffle", ns, "ns/index")


def resumed(step: int) -> float:
    """Return the milliseconds of Grain to the first batch at a step."""
    dataset = grain.MapDataset.source(Numbers()).shuffle(seed=0).batch(BATCH).to_iter_dataset(ALONE)
    state = {**iter(dataset).get_state(), "next_index": step}

    def first_batch() -> None:
        iterator = iter(dataset)
        iterator.set_state(state)
        next(iterator)

    return ms(first_batch, RESUMES)


def _ns(work: Callable[[], Any], indices: int) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / indices * 1e9
