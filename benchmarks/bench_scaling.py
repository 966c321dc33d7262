"""Costs that must not grow: of a bill, and of a resume, against sizes of everything. One line a point."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from lading import Mixture, Plan, World

BATCH = 256


def us(work: Callable[[int], Any], calls: int = 200, rounds: int = 5) -> float:
    """Return the microseconds of a call, the median of some rounds."""
    work(0)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for k in range(calls):
            work(k)
        times.append((time.perf_counter() - start) / calls * 1e6)
    return median(times)


def cases() -> Iterable[dict[str, Any]]:
    """Vary one size at a time."""
    for power in (4, 6, 8, 10, 12):
        plan = Plan.make({"a": 10**power}, BATCH)
        last = plan.epoch_steps(0) - 1
        yield _point("data size", 10**power, us(lambda k, p=plan, n=last: p.bill(k * 7919 % n)))
    for count in (1, 10, 100, 1000):
        mixture = Mixture([1.0] * count) if count > 1 else None
        plan = Plan.make({f"d{k}": 10**6 for k in range(count)}, BATCH, mixture=mixture)
        yield _point("number of datasets", count, us(lambda k, p=plan: p.bill(k * 31)))
    plan = Plan.make({"a": 10**9, "b": 10**9}, 8192, mixture=Mixture([2, 1]))
    for ranks in (1, 16, 128, 1024):
        world = World(ranks - 1, ranks)
        yield _point("world size", ranks, us(lambda k, w=world: plan.bill(k * 31, world=w), 50))
    plan = Plan.make({"a": 10**9, "b": 10**9}, BATCH, mixture=Mixture([2, 1]))
    for step in (0, 10**3, 10**5, 10**6):
        yield _point("resume point", step, us(lambda k, s=step: plan.bill(s + k)))
    for size in (1, 16, 256, 4096):
        plan = Plan.make({"a": 10**9, "b": 10**9}, size, mixture=Mixture([2, 1]))
        yield _point("batch size", size, us(lambda k, p=plan: p.bill(k)))


def _point(axis: str, value: int, microseconds: float) -> dict[str, Any]:
    name = f"bill, {axis} {value:_}".replace("_", " ")
    found = {"case": name, "ours": round(microseconds, 1), "peer": None, "unit": "us"}
    return {**found, "axis": axis, "value": value}
