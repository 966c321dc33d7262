"""Measure ours and the peer in the same run, in turns, so that a noisy machine is unfair to both."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """What a way returned in every round."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]


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
    """Return one result; ``ratio`` above 1 means that ours is better, ``floor`` is what an issue asks for.

    Who the peer is stands in ``peers.toml``, or is given as ``peer_name``. A goal is no peer: it belongs in
    ``goals.toml``, and its case has none (``alone``).
    """
    ratio = (ours / peer if higher_is_better else peer / ours) if ours and peer else None
    return {"case": name, "ours": ours, "peer": peer, "unit": unit, "ratio": ratio and round(ratio, 3), **more}


def alone(name: str, ours: float, unit: str, **more: Any) -> dict[str, Any]:
    """Return one result that has no peer."""
    return {"case": name, "ours": ours, "peer": None, "unit": unit, "ratio": None, **more}


def beside(ways: dict[str, Callable[[], float]], rounds: int = 9) -> dict[str, Spread]:
    """Return median, lowest and highest of what each way returns; every round runs each of them once."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()  # warm up: compile, fill caches
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way())
    return {name: Spread(statistics.median(v), min(v), max(v), tuple(v)) for name, v in found.items()}


def spread_case(
    name: str, found: dict[str, Spread], unit: str, *, ours: str = "ours", peer: str = "peer"
) -> dict[str, Any]:
    """Return one result of ``beside``, less being better; ``ratio`` is that of the medians, ``best`` of the lowest.

    ``spread`` has the ratios of the middle half of the rounds: ours and the peer of one round met the same machine.
    """
    mine, theirs = found[ours], found[peer]
    result = case(name, round(mine.median, 1), round(theirs.median, 1), unit, higher_is_better=False)
    ratios = sorted(b / a for a, b in zip(mine.rounds, theirs.rounds, strict=True))
    quarter = len(ratios) // 4
    spread = [round(ratios[quarter], 2), round(ratios[-1 - quarter], 2)]
    best = round(theirs.low / mine.low, 3)
    return {**result, "best": best, "low": round(mine.low, 1), "high": round(mine.high, 1), "spread": spread}
