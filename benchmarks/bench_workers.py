"""Two worker processes beside torch's: columns, samples of tensors, and samples that cost work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from benchmarks.measure import beside, spread_case
from torch.utils.data import DataLoader, Dataset

from lading.loader.torch.loader import Loader
from lading.loader.workers import ProcessSettings, Workers
from lading.source.columns import Columns

ROWS, COLUMNS, WIDTH = 16_384, 8, 288  # eight tensors, 9.2 kB a sample
WORK_SECONDS = 0.15e-3
ROUNDS = 7
FEW = 4_096  # rows, where each sample is read alone


class Tensors(Dataset[Any]):
    """Samples of eight tensors."""

    def __init__(self, columns: dict[str, torch.Tensor]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["c0"])

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: column[index] for name, column in self.columns.items()}


class Batched(Tensors):
    """The same with a hand-written ``__getitems__``."""

    def __getitems__(self, indices: list[int]) -> dict[str, torch.Tensor]:
        rows = torch.tensor(indices)
        return {name: column.index_select(0, rows) for name, column in self.columns.items()}


class Images(Dataset[Any]):
    """One image a sample, decoded in 0.15 ms."""

    def __len__(self) -> int:
        return 2_048

    def __getitem__(self, index: int) -> torch.Tensor:
        image = torch.full((3, 32, 32), float(index))
        end = time.perf_counter() + WORK_SECONDS
        while time.perf_counter() < end:
            pass
        return image


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def epochs(loader: Any, count: int = 1) -> Callable[[], int]:
    """Return a function that takes whole epochs of a loader, whose workers keep running, and returns the batches."""
    return lambda: sum(1 for _ in range(count) for _ in loader)


def bare(fetch: Callable[[list[int]], Any], size: int, count: int) -> Callable[[], int]:
    """Return the same for the bare workers, without plan, bills and names."""
    workers = Workers(ProcessSettings(fetch, 2), persistent=True)
    order = torch.randperm(ROWS).tolist()
    requests = [order[first : first + size] for first in range(0, ROWS, size)]
    return lambda: sum(1 for _ in range(count) for _ in workers.run(iter(requests)))


def cases() -> Iterable[dict[str, Any]]:
    """Measure batches through two workers that are already running."""
    torch.set_num_threads(1)
    data = {f"c{k}": torch.randn(ROWS, WIDTH) for k in range(COLUMNS)}
    kept: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
    for size, count in ((64, 1), (1024, 4)):
        torch_loader = DataLoader(Batched(data), size, shuffle=True, collate_fn=as_it_is, **kept)
        ways = {
            "bare": bare(Batched(data).__getitems__, size, count),
            "lading": epochs(Loader(Columns(**data), size, **kept), count),
            "torch": epochs(torch_loader, count),
        }
        yield from compared(f"two workers, columns, batch {size}", ways)
    few = {name: column[:FEW] for name, column in data.items()}
    for size in (64, 1024):
        ways = {
            "lading": epochs(Loader(Tensors(few), size, **kept)),
            "torch": epochs(DataLoader(Tensors(few), size, shuffle=True, **kept)),
        }
        yield from compared(f"two workers, samples of eight tensors, batch {size}", ways)
    ways = {
        "lading": epochs(Loader(Images(), 64, **kept)),
        "torch": epochs(DataLoader(Images(), 64, shuffle=True, **kept)),
        "no workers": epochs(Loader(Images(), 64)),
    }
    yield from compared("two workers, 0.15 ms of work a sample, batch 64", ways)


def compared(name: str, ways: dict[str, Callable[[], int]]) -> Iterable[dict[str, Any]]:
    """Measure some ways in turns; compare ours with torch's and with the others."""
    us = beside({way: timed(take) for way, take in ways.items()}, ROUNDS)
    yield spread_case(name, us, "us a batch", ours="lading", peer="torch")
    if "bare" in us:
        yield spread_case(f"{name}, bare workers", us, "us a batch", ours="bare", peer="torch")
    if "no workers" in us:
        yield spread_case(f"{name}, beside no workers", us, "us a batch", ours="lading", peer="no workers")


def timed(take: Callable[[], int]) -> Callable[[], float]:
    """Return a way: microseconds a batch of what takes batches and says how many they were."""

    def way() -> float:
        start = time.perf_counter()
        batches = take()
        return (time.perf_counter() - start) / batches * 1e6

    return way
