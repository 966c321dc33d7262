"""Run a long campaign: numbered units of work on both cores, until the time is over.

    python -m tests.campaigns.corruption SEED SECONDS [FIRST]     also fuzz, kill_soak; prints one JSON line
    LADING_CAMPAIGN_SEED=7 LADING_CAMPAIGN_SECONDS=1200 LADING_CAMPAIGN_FIRST=0 pytest -m slow -s tests/campaigns/...

Unit n of a seed is always the same, so a failure can be repeated, and a campaign continued from the ``next`` that the
one before printed. Units run in processes of their own; one that ends its process is a failure with a number.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

SEED, SECONDS, FIRST = (
    int(os.environ.get(f"LADING_CAMPAIGN_{name}", value))
    for name, value in (("SEED", "60"), ("SECONDS", "60"), ("FIRST", "0"))
)
Unit = Callable[[Path, int, int], "Found"]


@dataclasses.dataclass
class Found:
    """What came of some units.

    Attributes:
        figures: How often what happened.
        failures: What must not happen, each with what repeats it.
        most: Largest of some measurements.
    """

    figures: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: list[Any] = dataclasses.field(default_factory=list)
    most: dict[str, float] = dataclasses.field(default_factory=dict)

    def add(self, other: Found) -> None:
        """Take in what came of another unit."""
        self.figures += other.figures
        self.failures += other.failures
        for name, value in other.most.items():
            self.raise_most(name, value)

    def raise_most(self, name: str, value: float) -> None:
        """Take in one measurement."""
        self.most[name] = max(value, self.most.get(name, value))


def run_units(
    unit: Unit, home: Path, seed: int, seconds: float, first: int = 0, stop: int = 1 << 40
) -> tuple[Found, int]:
    """Run units from a number on, two at a time; return what came of them and the number of the next.

    Args:
        unit: Called with a folder of its process, the seed and the unit's number.
        home: Where to work.
        seed: Same seed, same units.
        seconds: No unit begins after that time.
        first: Number of the first unit.
        stop: No unit has that number or a higher one.
    """
    found, number, ends = Found(), first, time.monotonic() + seconds
    running: dict[Future[Found], int] = {}
    pool = _pool(home)
    while running or (number < stop and time.monotonic() < ends):
        while len(running) < 2 and number < stop and time.monotonic() < ends:
            running[pool.submit(_run, unit, seed, number)] = number
            number += 1
        for done in wait(running, return_when=FIRST_COMPLETED).done:
            which = running.pop(done, None)
            if which is None:
                continue  # the other one of a pool that broke
            try:
                found.add(done.result())
            except BrokenProcessPool:
                found.failures.append(f"unit {which} or its neighbour ended its process")
                running.clear()
                pool = _pool(home)
    pool.shutdown()
    return found, number


def _pool(home: Path) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), _begin, (str(home),))


def _begin(home: str) -> None:
    """Give a process a folder of its own."""
    os.environ["LADING_CAMPAIGN_HOME"] = tempfile.mkdtemp(dir=home)


def _run(unit: Unit, seed: int, number: int) -> Found:
    try:
        return unit(Path(os.environ["LADING_CAMPAIGN_HOME"]), seed, number)
    except Exception:
        return Found(failures=[f"unit {number} of seed {seed}: {traceback.format_exc(limit=-8)}"])


def main(unit: Unit) -> None:
    """Run a campaign from the command line; exit 1 if it found something."""
    seed, seconds, first = (int(text) for text in (*sys.argv[1:4], "0")[:3])
    home = Path(tempfile.mkdtemp(prefix="lading-campaign-"))
    try:
        found, following = run_units(unit, home, seed, seconds, first)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(told(found, seed, first, following), flush=True)
    sys.exit(bool(found.failures))


def told(found: Found, seed: int, first: int, following: int) -> str:
    """Return the figures as one JSON line."""
    units = {"seed": seed, "first": first, "next": following}
    return json.dumps({**units, "figures": found.figures, "most": found.most, "failures": found.failures[:20]})
