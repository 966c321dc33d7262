"""Shuffled rows of a mapped file, not in memory and in memory, beside a DataLoader with ``__getitems__``.

The file is forgotten by the system before each round. What a disk can do differs a lot; the ratio less so.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.bench_batches import Rows, as_it_is
from benchmarks.measure import beside, spread_case
from torch.utils.data import DataLoader

from lading import Loader

ROWS, WIDTH, BATCH, BATCHES, ROUNDS = 60_000, 1024, 256, 8, 5


def forget(path: Path) -> None:
    """Have the system forget a file that nobody maps."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def cases() -> Iterable[dict[str, Any]]:
    """Measure cold and warm rows of 4 kB."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.bin"
        with path.open("wb") as file:
            for _ in range(ROWS // 1000):
                file.write(np.random.default_rng(0).random((1000, WIDTH), dtype=np.float32).tobytes())
            os.fsync(file.fileno())

        def taking(make: Callable[[Any], Iterator[Any]], *, cold: bool) -> Callable[[], float]:
            def way() -> float:
                if cold:
                    forget(path)
                array = np.memmap(path, np.float32, "r", shape=(ROWS, WIDTH))
                if not cold:
                    array.sum()  # in memory, and known to this mapping
                batches = make(np.asarray(array))
                start = time.perf_counter()
                count = sum(1 for _ in islice(batches, BATCHES))
                return (time.perf_counter() - start) / count * 1e6

            return way

        def ours(array: Any) -> Iterator[Any]:
            return iter(Loader(array, BATCH))

        def theirs(array: Any) -> Iterator[Any]:
            return iter(DataLoader(Rows(array), BATCH, shuffle=True, collate_fn=as_it_is))

        for cold in (True, False):
            us = beside({"ours": taking(ours, cold=cold), "peer": taking(theirs, cold=cold)}, ROUNDS)
            where = "on disk" if cold else "in memory"
            yield spread_case(f"mapped rows {where}, batch {BATCH}, beside __getitems__", us, "us a batch")
