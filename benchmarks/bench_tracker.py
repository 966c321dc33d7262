"""Tracking beside the plain Python loop, and watching a loader beside the loader alone, in one run.

update     BatchTracker.update: ns a sample                                 floor: 20 at batches of 1 024
memory     bytes a sample at 10^8 samples of 5 datasets                     floor: 10
counts     n_samples_per_dataset after 10^5 and after 10^8 samples          floor: constant
lists      the indices of 10^8 samples, by dataset, as arrays
track      an epoch of 2 ms batches with and without track                  floor: 5 % overhead

Everything here runs in one thread, so processor time is measured: what other
processes do on the machine is left out.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.measure import case
from torch.utils.data import DataLoader, Dataset

from lading.ledger.tracker.tracker import BatchTracker
from lading.observe.tracking import track

BATCH_SIZES = (64, 1024, 4096)
NUM_DATASETS = 5
SAMPLES = 400_000
MANY = 100_000_000
BATCH_SECONDS = 0.002
TRACKED_BATCHES = 100
ROUNDS = 7


def batches(size: int, count: int) -> list[dict[str, torch.Tensor]]:
    """Return named batches as a DataLoader makes them."""
    generator = torch.Generator().manual_seed(0)
    return [
        {
            "idx": torch.randint(0, 10**8, (size,), generator=generator),
            "dataset_idx": torch.randint(0, NUM_DATASETS, (size,), generator=generator),
        }
        for _ in range(count)
    ]


def in_turns(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median processor seconds of each way; every round runs each of them once."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            times[name] += [time.process_time() - start] if number else []  # the first round warms up
    return {name: statistics.median(values) for name, values in times.items()}


class PlainTracker:
    """The plain Python loop that everybody writes first."""

    def __init__(self) -> None:
        self.tracker: dict[int, list[int]] = defaultdict(list)

    def update(self, batch: dict[str, torch.Tensor]) -> None:
        """Record a batch, sample by sample."""
        for index, dataset in zip(batch["idx"].tolist(), batch["dataset_idx"].tolist(), strict=True):
            self.tracker[dataset].append(index)


def updates() -> Iterator[dict[str, Any]]:
    """Nanoseconds a sample."""
    for size in BATCH_SIZES:
        count = SAMPLES // size
        given = batches(size, min(count, 200))

        def run(tracker: Any, given: list[Any] = given, count: int = count) -> None:
            for number in range(count):
                tracker.update(given[number % len(given)])

        times = in_turns({"ours": lambda r=run: r(BatchTracker()), "peer": lambda r=run: r(PlainTracker())}, ROUNDS)
        ours, peer = (times[name] / (count * size) * 1e9 for name in ("ours", "peer"))
        floor = 20.0 if size == 1024 else None
        yield case(f"update, batches of {size}", ours, peer, "ns/sample", higher_is_better=False, floor=floor)


def many() -> Iterator[dict[str, Any]]:
    """Memory, counts and lists of very many samples."""
    rng = np.random.default_rng(0)
    given = [
        {"idx": rng.integers(0, 2**32, 4096), "dataset_idx": rng.integers(0, NUM_DATASETS, 4096)} for _ in range(100)
    ]
    tracker, few = BatchTracker(), BatchTracker()
    for number in range(MANY // 4096):
        tracker.update(given[number % len(given)])
    for number in range(100_000 // 4096):
        few.update(given[number % len(given)])
    seen = len(tracker)
    yield case(
        f"memory of {seen:.0e} samples",
        tracker.num_bytes / seen,
        39.0,
        "bytes/sample",
        higher_is_better=False,
        floor=10.0,
    )
    counts = {"ours": lambda: tracker.n_samples_per_dataset, "peer": lambda: few.n_samples_per_dataset}
    times = in_turns(counts, 50)
    yield case(
        "counts of 1e8 beside 1e5 samples", times["ours"] * 1e6, times["peer"] * 1e6, "us", higher_is_better=False
    )
    start = time.process_time()
    arrays = tracker.arrays_per_dataset()
    seconds = time.process_time() - start
    yield {
        "case": f"{sum(map(len, arrays.values())):.0e} samples by dataset, as arrays",
        "ours": seconds,
        "peer": None,
        "unit": "s",
        "ratio": None,
        "floor": None,
    }


class Slow(Dataset[torch.Tensor]):
    """A dataset whose batches take a set time."""

    def __len__(self) -> int:
        return TRACKED_BATCHES * 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(index)

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        end = time.thread_time() + BATCH_SECONDS
        rows = list(torch.tensor(indices).unbind())
        while time.thread_time() < end:
            pass
        return rows


def tracked() -> Iterator[dict[str, Any]]:
    """Overhead of ``track``: the same loader with and without it, epoch by epoch in turns."""
    plain = DataLoader(Slow(), 64, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        ways = {
            "track, 2 ms batches": track(plain, tracker=BatchTracker()),
            "track with a ledger on disk, 2 ms batches": track(plain, run=Path(folder) / "run"),
            "peer": plain,
        }
        times = in_turns({name: lambda loader=loader: sum(1 for _ in loader) for name, loader in ways.items()}, ROUNDS)
        ways["track with a ledger on disk, 2 ms batches"].close()
    per_batch = {name: seconds / TRACKED_BATCHES * 1e3 for name, seconds in times.items()}
    peer = per_batch.pop("peer")
    for name, ours in per_batch.items():
        yield case(name, ours, peer, "ms/batch", higher_is_better=False, overhead=ours / peer - 1, floor=0.05)


def cases() -> Iterator[dict[str, Any]]:
    """Yield every case."""
    yield from updates()
    yield from tracked()
    yield from many()


if __name__ == "__main__":
    for result in cases():
        print(result)
