"""A ledger of many simulated ranks x 1 000 steps: every question, compaction, and the next attempt.

``ours`` is processor seconds at the larger number of ranks, ``peer`` those at the smaller number, times how many times
larger it is: a ratio near 1 or above means that nothing is worse than linear in what is asked. ``wall`` is the clock.

    python -m benchmarks.run scale                  100 and 1 000 ranks
    python -m benchmarks.bench_scale 1000 10000     the sizes of docs/scale.md (`make bench-scale`)
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.simulated_ledger import simulate, simulated_plan, size_of, unsynced

from lading.identity import Bill
from lading.ledger import Ledger
from lading.ledger.compact import compact
from lading.report import Run, open_run

RANKS = (100, 1_000)
STEPS = 1_000
Cost = tuple[float, float]


def cases(ranks: tuple[int, int] = RANKS, steps: int = STEPS) -> Iterable[dict[str, Any]]:
    """Yield one dict per case."""
    with tempfile.TemporaryDirectory() as folder:
        measured(Path(folder) / "warm-up", 3, 10)
        few, many = (measured(Path(folder) / str(number), number, steps) for number in ranks)
    times = ranks[1] / ranks[0]
    for question, (cost, wall) in many.items():
        linear = few[question][0] * times
        yield {
            "case": f"scale/{question}",
            "ours": round(cost, 4),
            "peer": round(linear, 4),
            "unit": question.split(",")[0] if question.startswith(("bytes", "files")) else "CPU s",
            "ratio": round(linear / max(cost, 1e-9), 3),
            "wall": round(wall, 2),
            "ranks": ranks[1],
        }


def measured(path: Path, ranks: int, steps: int) -> dict[str, Cost]:
    """Return processor seconds and seconds of each question, and the size, before and after compaction."""
    mark = simulate(path, ranks, steps)
    found = _questions(path, ranks, steps, "killed")
    with unsynced():
        found["open the next attempt"] = _timed(lambda: _resumed(path, ranks, steps, mark))
        found["compact"] = _timed(lambda: compact(path))
    return found | _questions(path, ranks, steps, "compacted")


def _questions(path: Path, ranks: int, steps: int, state: str) -> dict[str, Cost]:
    size, files = size_of(path)
    found: dict[str, Cost] = {"bytes": (size, 0), "files": (files, 0)}
    found["open"] = _timed(lambda: open_run(path))
    found |= _asked(open_run(path), simulated_plan(ranks, steps).bill(steps // 2))
    found["verify"] = _timed(lambda: _holds(path))
    return {f"{question}, {state}": value for question, value in found.items()}


def _asked(run: Run, bill: Bill) -> dict[str, Cost]:
    name, index = ("code", "prose")[int(bill.dataset_idx[0])], int(bill.idx[0])
    return {
        "where": _timed(lambda: _found(run.where(name, index))),
        "step": _timed(lambda: run.step(bill.step)),
        "mix": _timed(lambda: run.mix()),
    }


def _found(sightings: Any) -> None:
    assert len(sightings) >= 1, "the sample was used"


def _holds(path: Path) -> None:
    verdict = open_run(path).verify()
    assert verdict.holds, verdict.faults[:3]


def _resumed(path: Path, ranks: int, steps: int, mark: dict[str, Any]) -> None:
    """Begin as rank 0 of the next attempt, and end."""
    ledger = Ledger(path, simulated_plan(ranks, steps), rank=0, world_size=ranks)
    ledger.begin(steps, loaded={**mark, "step": steps})
    ledger.close()


def _timed(ask: Callable[[], Any]) -> Cost:
    wall, cost = time.perf_counter(), time.process_time()
    ask()
    return time.process_time() - cost, time.perf_counter() - wall


if __name__ == "__main__":
    for found in cases((int(sys.argv[1]), int(sys.argv[2]))):
        print(json.dumps(found), flush=True)
