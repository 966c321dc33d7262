"""How long a training step waits for data: steps of 2, 10 and 50 ms, beside torch and Grain at their best settings.

A step is a sleep: it stands for work on an accelerator, which leaves the cores to the loader. Every way is tried
once; those that are not hopeless are measured in turns again, and the best of each library is compared.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

import grain
import numpy as np
import torch
from absl import flags
from benchmarks.bench_batches import Table
from torch.utils.data import DataLoader, Dataset

from lading import Columns, Loader

STEPS = {0.002: 30, 0.010: 12, 0.050: 5}  # seconds of a step: how many are measured
ROWS, WIDTH = 16_384, 288
WORK_SECONDS = 0.3e-3
DRAINED = 20  # batches that workers have fetched while others were measured
ROUNDS = 3
LIBRARIES = ("lading", "torch", "grain")
PEERS = {"torch": "DataLoader", "grain": "Grain"}
Way = Callable[[], Iterator[Any]]


class Cheap(Dataset[Any]):
    """Samples that cost nothing."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Any:
        """Return a sample."""
        return int(index)


class Costly(Cheap):
    """Samples that cost 0.3 ms of a core."""

    def __getitem__(self, index: int) -> Any:
        """Return a sample."""
        end = time.thread_time() + WORK_SECONDS  # of this thread: others that run meanwhile do not do its work
        while time.thread_time() < end:
            pass
        return np.full(64, index, np.float32)


class Rows:
    """The same for Grain, whose batches of indices are arrays."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns = columns

    def __call__(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[rows] for name, column in self.columns.items()}


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def endless(loader: Any) -> Iterator[Any]:
    """Iterate over epoch after epoch."""
    while True:
        yield from loader


def of_loaders(ours: Callable[..., Any], theirs: Callable[..., Any]) -> dict[str, Way]:
    """Return the settings of Lading's and torch's loaders to choose from."""
    settings: dict[str, dict[str, Any]] = {"no workers": {}}
    for workers, factor in ((1, 2), (2, 2), (2, 8)):
        name = f"{workers} workers, prefetch_factor {factor}"
        settings[name] = {"num_workers": workers, "prefetch_factor": factor, "persistent_workers": True}
    makers = {"lading": ours, "torch": theirs}
    return {
        f"{library}: {name}": lambda make=make, given=given: endless(make(**given))
        for library, make in makers.items()
        for name, given in settings.items()
    }


def of_grain(dataset: grain.MapDataset[Any]) -> dict[str, Way]:
    """Return the settings of Grain to choose from: threads as it has them by default, none, two processes."""
    endless_data = dataset.repeat()

    def threads(**options: int) -> Iterator[Any]:
        return iter(endless_data.to_iter_dataset(grain.ReadOptions(**options) if options else None))

    def processes() -> Iterator[Any]:
        alone = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
        options = grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2)
        return iter(endless_data.to_iter_dataset(alone).mp_prefetch(options))

    return {
        "grain: 16 threads": threads,
        "grain: no threads": lambda: threads(num_threads=0, prefetch_buffer_size=0),
        "grain: 2 processes": processes,
    }


def kinds() -> Iterator[tuple[str, dict[str, Way]]]:
    """Yield what is loaded, and every way to load it."""
    shuffled = {"shuffle": True}
    for name, data in (("cheap samples, batch 64", Cheap()), ("samples of 0.3 ms, batch 64", Costly())):
        ways = of_loaders(
            lambda data=data, **given: Loader(data, 64, **given),
            lambda data=data, **given: DataLoader(data, 64, **shuffled, **given),
        )
        yield name, ways | of_grain(grain.MapDataset.source(data).shuffle(seed=0).batch(64))
    columns = {f"c{k}": torch.randn(ROWS, WIDTH) for k in range(8)}
    arrays = {name: column.numpy().copy() for name, column in columns.items()}  # torch moves tensors that it shares
    ways = of_loaders(
        lambda **given: Loader(Columns(**columns), 256, **given),
        lambda **given: DataLoader(Table(columns), 256, collate_fn=as_it_is, **shuffled, **given),
    )
    yield (
        "columns, batch 256",
        ways | of_grain(grain.MapDataset.range(ROWS).shuffle(seed=0).batch(256).map(Rows(arrays))),
    )


def waits(batches: Iterator[Any], drained: int) -> dict[float, float]:
    """Return the share of time that is no step, for steps of each length, after some batches that are not counted.

    What steps alone take is measured and subtracted. So a loader whose threads keep the training loop from running
    waits, too, although its batches are there.
    """
    for _ in range(drained):
        next(batches)
    found = {}
    for seconds, count in STEPS.items():
        whole = _elapsed(lambda batches=batches: next(batches), seconds, count)
        found[seconds] = max(0.0, 1 - alone(seconds, count) / whole)
    return found


@functools.cache
def alone(seconds: float, count: int) -> float:
    """Return the time of steps without a loader, the median of some rounds."""
    return median(_elapsed(lambda: None, seconds, count) for _ in range(3))


def _elapsed(next_batch: Callable[[], Any], seconds: float, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        time.sleep(seconds)
        next_batch()
    return time.perf_counter() - start


class Measured:
    """Ways to load one kind of data, and the shares that were found for each.

    Args:
        ways: By name.
    """

    def __init__(self, ways: dict[str, Way]) -> None:
        self.ways, self.found = ways, {name: list[dict[float, float]]() for name in ways}
        self._running: dict[str, Iterator[Any]] = {}

    def measure(self, name: str) -> None:
        """Measure a way; processes are started once and keep running."""
        if "workers" not in name and "processes" not in name:
            shares = waits(self.ways[name](), 1)
        else:
            is_new = name not in self._running
            batches = self._running.setdefault(name, self.ways[name]()) if is_new else self._running[name]
            shares = waits(batches, 1 if is_new else DRAINED)
        self.found[name].append(shares)

    def hopeless(self) -> set[str]:
        """Return the ways that wait twice as long as the best of their library for every length."""
        shares = {name: {s: median(f[s] for f in self.found[name]) for s in STEPS} for name in self.ways}
        best = {(lib, s): min(shares[n][s] for n in self.ways if n.startswith(lib)) for lib in LIBRARIES for s in STEPS}
        return {n for n in self.ways if all(shares[n][s] > 2 * best[n.split(":")[0], s] for s in STEPS)}

    def best(self, library: str, step: float) -> str:
        """Return the way of a library that waited least for a length, of those that were measured to the end."""
        names = [n for n in self.ways if n.startswith(library) and len(self.found[n]) == ROUNDS]
        return min(names, key=lambda n: median(f[step] for f in self.found[n]))


def cases() -> Iterable[dict[str, Any]]:
    """Measure every kind of data."""
    torch.set_num_threads(1)
    flags.FLAGS(["bench"])  # Grain's processes ask for them
    for seconds, count in STEPS.items():
        alone(seconds, count)  # before any loader runs
    for kind, ways in kinds():
        measured = Measured(ways)
        going = set(ways)
        for _ in range(ROUNDS):
            for name in sorted(going):
                measured.measure(name)
            going -= measured.hopeless()
        for step in STEPS:
            yield from compared(f"{kind}, step of {step * 1e3:.0f} ms", step, measured)


def compared(name: str, step: float, measured: Measured) -> Iterator[dict[str, Any]]:
    """Yield ours beside each peer, in percent of the time."""
    best = {library: measured.best(library, step) for library in LIBRARIES}
    percent = {library: [100 * shares[step] for shares in measured.found[best[library]]] for library in LIBRARIES}
    for peer, label in PEERS.items():
        yield {
            "case": f"waiting for {name}, beside {label}",
            "ours": round(median(percent["lading"]), 2),
            "peer": round(median(percent[peer]), 2),
            "unit": "% of the time",
            "ratio": None,
            "low": round(min(percent["lading"]), 2),
            "high": round(max(percent["lading"]), 2),
            "settings": [best["lading"], best[peer]],
        }
