"""What a batch costs in one process, beside what a user would pick instead (torch on one thread)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
import torch
from benchmarks.measure import alone, beside, spread_case
from torch.utils.data import DataLoader, Dataset

from lading import Columns, Ledger, Loader
from lading.runtime import random_state

ROWS, WIDTH = 100_000, 288


class Cheap(Dataset):
    """Samples that cost nothing."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> int:
        return index


class RandomFree(Cheap):
    """The same, with the user's word that nothing is drawn."""

    random_free = True


class CheapTensors(Cheap):
    """The same, each a tensor that is there already."""

    ONE = torch.zeros(4)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.ONE


class Rows(Dataset):
    """One array with a hand-written ``__getitems__``."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return torch.from_numpy(self.array[indices])


class Table(Dataset):
    """Eight columns with a hand-written ``__getitems__``."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        rows = torch.tensor(indices)
        return {name: column.index_select(0, rows) for name, column in self.columns.items()}


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def taking(make: Callable[[], Any], batches: int) -> Callable[[], float]:
    """Return a way: take some batches of a fresh loader, the first not counted, and return microseconds a batch."""

    def way() -> float:
        iterator = iter(make())
        next(iterator)
        start = perf_counter()
        count = sum(1 for _ in islice(iterator, batches))
        return (perf_counter() - start) / count * 1e6

    return way


def cases() -> Iterable[dict[str, Any]]:
    """Measure cheap samples, one array, eight columns, a mixture of 100 arrays, the ledger."""
    torch.set_num_threads(1)
    yield from cheap_cases()
    yield from array_cases()
    yield from column_cases()
    yield from mixture_case()
    yield from ledger_case()


def cheap_cases() -> Iterable[dict[str, Any]]:
    """Samples that cost nothing: what is left is ours."""
    for size in (1, 32, 256):
        us = beside(
            {
                "ours": taking(lambda s=size: Loader(Cheap(), s), 1000),
                "free": taking(lambda s=size: Loader(RandomFree(), s), 1000),
                "peer": taking(lambda s=size: DataLoader(Cheap(), s, shuffle=True), 1000),
            }
        )
        yield spread_case(f"cheap samples, batch {size}", us, "us a batch")
        yield spread_case(f"cheap samples, random_free, batch {size}", us, "us a batch", ours="free")

    for size in (1, 32, 256):
        us = beside(
            {
                "ours": taking(lambda s=size: Loader(CheapTensors(), s), 1000),
                "peer": taking(lambda s=size: DataLoader(CheapTensors(), s, shuffle=True), 1000),
            }
        )
        yield spread_case(f"cheap tensors, batch {size}", us, "us a batch")
    yield worker_case()


def worker_case() -> dict[str, Any]:
    """What a batch of a class that may draw costs more in a worker: three generators are seeded."""

    def way() -> float:
        start = perf_counter()
        for key in range(5000):
            random_state.seed(key)
        return (perf_counter() - start) / 5000 * 1e6

    with random_state.untouched():
        found = beside({"ours": way})["ours"]
    sizes = {"low": round(found.low, 1), "high": round(found.high, 1)}
    return alone("a user's own class in a worker, more", round(found.median, 1), "us a batch", **sizes)


def array_cases() -> Iterable[dict[str, Any]]:
    """One NumPy array."""
    array = np.random.default_rng(0).random((ROWS, 16), dtype=np.float32)
    for size in (1, 32, 256):
        us = beside(
            {
                "ours": taking(lambda s=size: Loader(array, s), min(1000, ROWS // size - 2)),
                "peer": taking(
                    lambda s=size: DataLoader(Rows(array), s, shuffle=True, collate_fn=as_it_is),
                    min(1000, ROWS // size - 2),
                ),
            }
        )
        yield spread_case(f"one array, batch {size}, beside __getitems__", us, "us a batch")


def column_cases() -> Iterable[dict[str, Any]]:
    """Eight columns, 9.2 kB a sample."""
    data = {f"c{k}": torch.randn(ROWS, WIDTH) for k in range(8)}
    for size in (16, 64, 256, 1024):
        batches = min(1000, 60_000 // size)
        us = beside(
            {
                "ours": taking(lambda s=size: Loader(Columns(**data), s), batches),
                "peer": taking(lambda s=size: DataLoader(Table(data), s, shuffle=True, collate_fn=as_it_is), batches),
                "limit": taking(lambda s=size: selecting(data, s), batches),
            }
        )
        yield spread_case(f"eight columns, batch {size}, beside __getitems__", us, "us a batch")
        yield spread_case(f"eight columns, batch {size}, beside the limit", us, "us a batch", peer="limit")


def selecting(data: dict[str, torch.Tensor], size: int) -> Iterable[None]:
    """Gather into ready buffers, and nothing else."""
    rows = torch.randperm(ROWS)[: ROWS // size * size].view(-1, size)
    out = {name: torch.empty((size, *column.shape[1:])) for name, column in data.items()}
    for chosen in rows:
        for name, column in data.items():
            torch.index_select(column, 0, chosen, out=out[name])
        yield


def mixture_case() -> Iterable[dict[str, Any]]:
    """A hundred arrays, drawn by weight and shuffled together, beside one of the same rows."""
    array = np.random.default_rng(0).random((ROWS, 16), dtype=np.float32)
    many = {f"d{k}": array[k * 1000 : (k + 1) * 1000] for k in range(100)}
    us = beside(
        {
            "weighted": taking(lambda: Loader(many, 256, weights=[1.0] * 100), 380),
            "unweighted": taking(lambda: Loader(many, 256), 380),
            "peer": taking(lambda: Loader(array, 256), 380),
        }
    )
    yield spread_case("mixture of 100 arrays, batch 256, beside one array", us, "us a batch", ours="weighted")
    yield spread_case("100 arrays without weights, batch 256, beside one array", us, "us a batch", ours="unweighted")


def ledger_case() -> Iterable[dict[str, Any]]:
    """The loop with a ledger beside the loop without: what it pays for an append."""
    array = np.random.default_rng(0).random((ROWS, 16), dtype=np.float32)
    folder = tempfile.mkdtemp()

    def recorded() -> Iterable[Any]:
        with Ledger(tempfile.mkdtemp(dir=folder)) as ledger:
            loader = Loader(array, 64, tracker=ledger)
            for batch, bill in loader.with_bills():
                ledger.commit(bill, loss=0.5)
                yield batch

    us = beside({"ours": taking(recorded, 1000), "peer": taking(lambda: Loader(array, 64), 1000)})
    shutil.rmtree(folder)
    extra = us["ours"][0] - us["peer"][0]
    yield {"case": "ledger in the loop, digest", "ours": round(extra, 1), "peer": None, "unit": "us more a batch"}
