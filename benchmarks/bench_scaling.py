"""Costs that must not grow: of a bill, and of a resume, against sizes of everything. One line a point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.measure import beside

from lading import Mixture, Plan, World

BATCH, ROUNDS = 256, 15


def us(work: Callable[[int], Any], calls: int = 200) -> float:
    """Return the microseconds of a call."""
    start = time.perf_counter()
    for k in range(calls):
        work(k)
    return (time.perf_counter() - start) / calls * 1e6


def cases() -> Iterable[dict[str, Any]]:
    """Vary one size at a time."""
    for axis, ways in axes().items():
        found = beside(ways, ROUNDS)  # in turns: a machine that is busy for a moment hits all points alike
        for value, (microseconds, low, high, _) in found.items():
            name = f"bill, {axis} {int(value):_}".replace("_", " ")
            case = {"case": name, "ours": round(microseconds, 1), "peer": None, "unit": "us"}
            yield {**case, "low": round(low, 1), "high": round(high, 1), "axis": axis, "value": int(value)}


def axes() -> dict[str, dict[str, Callable[[], float]]]:
    """Return, by axis and size, what is measured."""
    two, small = {"a": 10**9, "b": 10**9}, Mixture([2, 1])
    sized = {10**p: Plan.make({"a": 10**p}, BATCH) for p in (4, 6, 8, 10, 12)}
    mixed = {
        n: Plan.make({f"d{k}": 10**6 for k in range(n)}, BATCH, mixture=Mixture([1.0] * n) if n > 1 else None)
        for n in (1, 10, 100, 1000)
    }
    shared = {n: Plan.make(two, 8 * n, mixture=small) for n in (1, 16, 128, 1024)}  # G grows with the ranks
    plan = Plan.make(two, BATCH, mixture=small)
    batched = {size: Plan.make(two, size, mixture=small) for size in (1, 16, 256, 4096)}
    return {
        "data size": {
            str(n): lambda p=p: us(lambda k: p.bill(k * 7919 % (p.epoch_steps(0) - 1))) for n, p in sized.items()
        },
        "number of datasets": {str(n): lambda p=p: us(lambda k: p.bill(k * 31)) for n, p in mixed.items()},
        "world size": {
            str(n): lambda n=n, p=p: us(lambda k: p.bill(k * 31, world=World(n // 2, n)), 50) for n, p in shared.items()
        },
        "resume point": {str(n): lambda n=n: us(lambda k: plan.bill(n + k)) for n in (0, 10**3, 10**5, 10**6)},
        "batch size": {str(n): lambda p=p: us(p.bill) for n, p in batched.items()},
    }
