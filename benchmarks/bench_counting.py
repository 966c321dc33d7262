"""What it costs to compare a batch with its bill, beside nothing: microseconds a batch of 64 rows.

flat      a dict of tensors                                                   floor: 1 us
nested    dicts, tuples and lists inside each other, the rows found last      floor: 3 us
columns   each of the columns of ``take()``                                   floor: 1 us
samples   64 samples of which none is None

One thread, so processor time is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from benchmarks.measure import case

from lading.source.counting import RowCounter, check_columns, check_samples

ROWS = 64
CALLS = 20_000
ROUNDS = 9
FLOORS = {"flat": 1.0, "nested": 3.0, "columns": 1.0}


def ways() -> dict[str, Callable[[], Any]]:
    """Return what is measured, by name."""
    count = RowCounter(None)
    column, other = torch.zeros(ROWS, 8), torch.zeros(7, 8)
    flat = {"x": column, "y": column, "z": column}
    nested = {"meta": {"name": "a", "size": (3, 4)}, "parts": [other, (other, other)], "rest": {"y": {"z": column}}}
    columns = {"x": np.zeros((ROWS, 8)), "y": np.zeros(ROWS), "z": np.zeros(ROWS)}
    samples = [{"x": 1} for _ in range(ROWS)]
    return {
        "flat": lambda: count(flat, ROWS),
        "nested": lambda: count(nested, ROWS),
        "columns": lambda: check_columns(columns, ROWS, "Table"),
        "samples": lambda: check_samples(samples, samples, "Rows"),
        "nothing": lambda: None,
    }


def microseconds(way: Callable[[], Any]) -> float:
    """Return the processor time of one call."""
    start = time.process_time()
    for _ in range(CALLS):
        way()
    return (time.process_time() - start) / CALLS * 1e6


def cases() -> Iterator[dict[str, Any]]:
    """Yield every case."""
    found: dict[str, list[float]] = {name: [] for name in ways()}
    for _ in range(ROUNDS):
        for name, way in ways().items():
            found[name].append(microseconds(way))
    medians = {name: statistics.median(values) for name, values in found.items()}
    nothing = medians.pop("nothing")
    for name, value in medians.items():
        ours = round(value - nothing, 3)
        yield case(f"counting rows, {name}", ours, 0, "us/batch", higher_is_better=False, floor=FLOORS.get(name))


if __name__ == "__main__":
    for result in cases():
        print(result)
