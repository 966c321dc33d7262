"""Assembling batches beside torch's DataLoader, and beside nothing but the gather."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from typing import Any

import torch
from benchmarks.measure import case, interleaved
from torch.utils.data import DataLoader, Dataset

from lading.loader.torch.loader import Loader
from lading.source.columns import Columns

ROWS, WIDTH, NEGATIVES = 100_000, 384, 8
SAMPLES = 24_000  # taken by each way in each round


class PerSample(Dataset):
    """The dataset people write: a dict of rows."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


class Batched(PerSample):
    """The same with a hand-written ``__getitems__``: the best a DataLoader can do."""

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        rows = torch.tensor(indices)
        return {name: column.index_select(0, rows) for name, column in self.columns.items()}


def columns() -> dict[str, torch.Tensor]:
    """Return rows of about the size of a JASPER sample."""
    wide = {name: torch.randn(ROWS, WIDTH) for name in ("question", "target", "steering")}
    scalars = {name: torch.randn(ROWS) for name in ("relevance", "distance", "a", "b")}
    return {**wide, "negatives": torch.randn(ROWS, NEGATIVES // 2, WIDTH), **scalars}


def consume(loader: Any, batches: int) -> None:
    """Take some batches."""
    for _ in islice(loader, batches):
        pass


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def with_steps(batches: Iterator[Any], seconds: float, count: int) -> float:
    """Return the time of training steps, each a sleep and the next batch."""
    start = time.perf_counter()
    for _ in range(count):
        next(batches)
        time.sleep(seconds)
    return time.perf_counter() - start


def step_case(data: dict[str, torch.Tensor], size: int, seconds: float) -> dict[str, Any]:
    """Steps as long as the bare gather by two threads: what is gathered meanwhile costs them nothing."""
    count, nothing = 20, repeat(None)
    ours = iter(Loader(Columns(**data), size))
    with_steps(ours, seconds, 4)
    found = [(with_steps(ours, seconds, count), with_steps(nothing, seconds, count)) for _ in range(3)]
    rates = [size * count / statistics.median(times) for times in zip(*found, strict=True)]
    name = f"columns, batch {size}, steps as long as a gather by two threads, beside no loading"
    return case(name, *rates, "samples/s", higher_is_better=True)


def cases() -> Iterable[dict[str, Any]]:
    """Measure throughput at three batch sizes."""
    data = columns()
    for size in (64, 256, 1024):
        batches = SAMPLES // size
        rows = torch.randint(0, ROWS, (batches, size))
        out = {name: torch.empty((size, *c.shape[1:])) for name, c in data.items()}

        def limit(threads: int, rows: Any = rows, out: Any = out, batches: int = batches) -> None:
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            for k in range(batches):
                for name, column in data.items():
                    torch.index_select(column, 0, rows[k], out=out[name])
            torch.set_num_threads(before)

        ways = {
            "lading": lambda n=batches, s=size: consume(Loader(Columns(**data), s), n),
            "per sample": lambda n=batches, s=size: consume(DataLoader(PerSample(data), s, shuffle=True), n),
            "__getitems__": lambda n=batches, s=size: consume(
                DataLoader(Batched(data), s, shuffle=True, collate_fn=as_it_is), n
            ),
            "limit": lambda: limit(1),
            "limit, 2 threads": lambda: limit(2),
        }
        rates = {name: batches * size / seconds for name, seconds in interleaved(ways, rounds=5).items()}
        floors = {"per sample": 6 if size == 256 else None}
        for peer in ("per sample", "__getitems__", "limit", "limit, 2 threads"):
            is_limit = peer.startswith("limit")
            label = peer.replace("limit", "bare index_select") if is_limit else f"DataLoader {peer}"
            yield case(
                f"columns, batch {size}, beside {label}", rates["lading"], rates[peer], "samples/s",
                higher_is_better=True, floor=floors.get(peer),
            )  # fmt: skip
        if size > 64:
            yield step_case(data, size, size / rates["limit, 2 threads"])
