"""A ledger of 1 000 and 10 000 simulated ranks x 1 000 steps: every question, and compaction.

``ours`` is seconds at 10 000 ranks, ``peer`` ten times the seconds at 1 000 ranks: a ratio near 1 or above means that
nothing is worse than linear in what is asked.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.simulated_ledger import simulate, size_of

from lading.ledger.compact import compact
from lading.report import open_run

RANKS = (1_000, 10_000)
STEPS = 1_000


def cases(ranks: tuple[int, int] = RANKS, steps: int = STEPS) -> Iterable[dict[str, Any]]:
    """Yield one dict per case."""
    with tempfile.TemporaryDirectory() as folder:
        few, many = (measured(Path(folder) / str(number), number, steps) for number in ranks)
    times = ranks[1] / ranks[0]
    for question, seconds in many.items():
        yield {
            "case": f"scale/{question}",
            "ours": round(seconds, 4),
            "peer": round(few[question] * times, 4),
            "unit": "bytes" if question.startswith("bytes") else "files" if question.startswith("files") else "s",
            "ratio": round(few[question] * times / max(seconds, 1e-9), 3),
        }


def measured(path: Path, ranks: int, steps: int) -> dict[str, float]:
    """Return the seconds of each question, and the size, before and after compaction."""
    found: dict[str, float] = {"simulate": _timed(lambda: simulate(path, ranks, steps))}
    found |= {f"{name}, killed": value for name, value in _questions(path).items()}
    with mock.patch("os.fsync"):  # what a disk costs is not what is asked here
        found["compact"] = _timed(lambda: compact(path))
    found |= {f"{name}, compacted": value for name, value in _questions(path).items()}
    return found


def _questions(path: Path) -> dict[str, float]:
    size, files = size_of(path)
    found: dict[str, float] = {"bytes": size, "files": files}
    start = time.perf_counter()
    run = open_run(path)
    found["open"] = time.perf_counter() - start
    found["where"] = _timed(lambda: run.where("code", 12_345))
    found["step"] = _timed(lambda: run.step(7))
    found["mix"] = _timed(lambda: run.mix())
    found["verify"] = _timed(lambda: _holds(path))
    return found


def _holds(path: Path) -> None:
    verdict = open_run(path).verify()
    assert verdict.holds, verdict.faults[:3]


def _timed(ask: Any) -> float:
    start = time.perf_counter()
    ask()
    return time.perf_counter() - start
