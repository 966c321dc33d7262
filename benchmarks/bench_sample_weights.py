"""Weights of single samples beside torch's ``WeightedRandomSampler``: to the first batch, memory, and each batch.

Every figure is of a process of its own, which makes the weights, then starts the clock; the two ways take turns.
``order`` is which samples a batch has, ``loader`` the batch itself, from a ``TensorDataset`` in memory. Torch refuses
more than 2**24 weights: there is no peer at 1e8.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from benchmarks.measure import case

BATCH, BATCHES, ROUNDS = 256, 400, 3
UNITS = {"first": "s to the first batch", "memory": "MB above the weights", "batch": "us/batch"}


def ours_order(weights: np.ndarray) -> Iterable[Any]:
    """Yield the bills of a plan with weights."""
    from lading.order import Plan

    plan = Plan.make({"data": len(weights)}, BATCH, sample_weights={"data": weights})
    return map(plan.bill, range(plan.epoch_steps(0)))


def peer_order(weights: np.ndarray) -> Iterable[Any]:
    """Yield the indices that torch draws, batch by batch."""
    import torch
    from torch.utils.data import BatchSampler, WeightedRandomSampler

    return BatchSampler(WeightedRandomSampler(torch.from_numpy(weights), len(weights)), BATCH, drop_last=False)


def ours_loader(weights: np.ndarray) -> Iterable[Any]:
    """Yield the batches of a loader with weights."""
    import torch
    from torch.utils.data import TensorDataset

    from lading import Loader

    return Loader(TensorDataset(torch.arange(len(weights), dtype=torch.int32)), BATCH, sample_weights=weights)


def peer_loader(weights: np.ndarray) -> Iterable[Any]:
    """Yield the batches of torch's loader with its sampler."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

    sampler = WeightedRandomSampler(torch.from_numpy(weights), len(weights))
    return DataLoader(TensorDataset(torch.arange(len(weights), dtype=torch.int32)), BATCH, sampler=sampler)


def measure(way: str, size: int) -> dict[str, float]:
    """Measure one way in this process: imports and compiling are not counted, the weights' own memory neither."""
    make = globals()[way]
    next(iter(make(np.ones(1 << 18))))  # import, compile
    weights = np.random.default_rng(0).exponential(size=size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    batches = iter(make(weights))
    next(batches)
    first = time.perf_counter() - start
    start = time.perf_counter()
    number = sum(1 for _ in islice(batches, BATCHES))
    each = (time.perf_counter() - start) / max(number, 1)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"first": first, "memory": (after - before) / 1024, "batch": each * 1e6}


def asked(way: str, size: int) -> dict[str, float] | None:
    """Measure in a process of its own; None where torch refuses."""
    command = [sys.executable, "-m", "benchmarks.bench_sample_weights", way, str(size)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if "number of categories cannot exceed" in found.stderr:
        return None
    return json.loads(found.stdout)


def cases() -> Iterable[dict[str, Any]]:
    """Measure orders and loaders of 1e4 to 1e8 samples."""
    for kind in ("order", "loader"):
        for size in (10**4, 10**6, 10**7, 10**8):
            ways = {way: [asked(f"{way}_{kind}", size)] for way in ("ours", "peer")}
            for _ in range(ROUNDS - 1 if size < 10**8 else 0):
                for way, found in ways.items():
                    found.append(asked(f"{way}_{kind}", size))
            for figure, unit in UNITS.items():
                both = [[f[figure] for f in ways[way] if f is not None] for way in ("ours", "peer")]
                ours, peer = (round(statistics.median(found), 4) if found else None for found in both)
                yield case(f"{kind} of {size:.0e} weighted samples", ours, peer, unit, higher_is_better=False)  # type: ignore[arg-type]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
