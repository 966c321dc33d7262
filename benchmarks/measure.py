"""Measure ours and the peer in the same run, in turns, so that a noisy machine is unfair to both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def interleaved(ways: dict[str, Callable[[], Any]], rounds: int = 7, *, warm_up: bool = True) -> dict[str, float]:
    """Return the median seconds of each way; every round runs each of them once, after one that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values() if warm_up else ():
        way()  # compile, fill caches
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def case(name: str, ours: float, peer: float, unit: str, *, higher_is_better: bool, **more: Any) -> dict[str, Any]:
    """Return one result; ``ratio`` above 1 means that ours is better, ``floor`` is what an issue asks for."""
    ratio = (ours / peer if higher_is_better else peer / ours) if ours and peer else None
    return {"case": name, "ours": ours, "peer": peer, "unit": unit, "ratio": ratio and round(ratio, 3), **more}


def beside(ways: dict[str, Callable[[], float]], rounds: int = 9) -> dict[str, tuple[float, float, float]]:
    """Return median, lowest and highest of what each way returns; every round runs each of them once."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # warm up: compile, fill caches
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return {name: (statistics.median(values), min(values), max(values)) for name, values in found.items()}


def spread_case(
    name: str, found: dict[str, tuple[float, float, float]], unit: str, *, ours: str = "ours", peer: str = "peer"
) -> dict[str, Any]:
    """Return one result of ``beside``, less being better; ``ratio`` is that of the medians, ``best`` of the lowest."""
    mine, theirs = found[ours], found[peer]
    result = case(name, round(mine[0], 1), round(theirs[0], 1), unit, higher_is_better=False)
    return {**result, "best": round(theirs[1] / mine[1], 3), "low": round(mine[1], 1), "high": round(mine[2], 1)}
