"""The ledger at 10^8 samples: bytes, answers, and what it costs a training loop.

    planned     digests only: bytes a rank and batch, `where` and `step` whatever the length
    observed    names kept: bytes a sample, `where`, `step`, `mix`
    loop        the same loop with and without a ledger, interleaved, at 200 000 samples/s

``ours`` is measured, ``peer`` is the limit the project set itself (PEERS.md, section 7) or the loop without a
ledger; a ratio of 1 or more reaches it.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

SAMPLES = 100_000_000
PLANNED_BATCH = 512
OBSERVED_BATCH = 1024
ROUNDS = 3
LOOP_BATCH, LOOP_STEPS, LOOP_RATE, LOOP_ROUNDS = 256, 400, 200_000, 9


def cases() -> Iterable[dict[str, Any]]:
    """Yield one dict per case."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _planned(Path(folder) / "planned")
        yield from _observed(Path(folder) / "observed")
        yield from _loop(Path(folder))


def _case(case: str, ours: float, peer: float, unit: str, **more: Any) -> dict[str, Any]:
    fields = {"case": f"ledger/{case}", "ours": round(ours, 4), "peer": peer, "unit": unit}
    return {**fields, "ratio": round(peer / ours, 3), "floor": 1.0, **more}


def _median_ms(ask: Callable[[], Any]) -> float:
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        ask()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times)


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _record(path: Path, plan: Plan, steps: int, *, with_plan: bool) -> float:
    start = time.perf_counter()
    noise = np.random.default_rng(0).normal(2.0, 0.1, steps).astype(np.float32)
    with Ledger(path, plan if with_plan else None, names=plan.names) as ledger:
        for step in range(steps):
            bill = plan.bill(step)
            ledger.deliver(bill)
            ledger.commit(bill, update=step, loss=noise[step])
    return time.perf_counter() - start


def _planned(path: Path) -> Iterable[dict[str, Any]]:
    steps = SAMPLES // PLANNED_BATCH
    plan = Plan.make({"code": SAMPLES // 5, "prose": SAMPLES // 20}, batch_size=PLANNED_BATCH, seed=1)
    seconds = _record(path, plan, steps, with_plan=True)
    yield _case("planned bytes", _bytes(path) / steps, 16.0, "bytes a rank and batch", steps=steps, seconds=seconds)
    name = plan.names[0]
    first = _median_ms(lambda: open_run(path).where(name, 93_412))  # opening the run counts: a question comes cold
    yield _case("planned where", first, 50.0, "ms, run opened for it")
    yield _case("planned step", _median_ms(lambda: open_run(path).step(steps // 2)), 50.0, "ms, run opened for it")


def _observed(path: Path) -> Iterable[dict[str, Any]]:
    steps = SAMPLES // OBSERVED_BATCH
    plan = Plan.make({"code": SAMPLES // 5, "prose": SAMPLES // 20}, batch_size=OBSERVED_BATCH, seed=1)
    seconds = _record(path, plan, steps, with_plan=False)
    size = _bytes(path) / (steps * OBSERVED_BATCH)
    yield _case("observed bytes", size, 4.5, "bytes a sample", seconds=seconds)
    run = open_run(path)
    yield _case("observed where", _median_ms(lambda: run.where("code", 93_412)), 1000.0, "ms")
    yield _case("observed step", _median_ms(lambda: run.step(steps // 2)), 100.0, "ms")
    yield _case("observed mix", _median_ms(lambda: open_run(path).mix()), 2000.0, "ms, run opened for it")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    yield _case("peak memory", peak, 2.0, "GB of the whole process")


def _loop(folder: Path) -> Iterable[dict[str, Any]]:
    plan = Plan.make({"code": 10_000_000}, batch_size=LOOP_BATCH, seed=1)
    bills = [plan.bill(step) for step in range(LOOP_STEPS)]
    for record in ("digest", "names"):
        pairs = []
        for turn in range(LOOP_ROUNDS):
            with Ledger(folder / f"{record}{turn}", plan, record=record) as ledger:
                ledger.begin(0)
                pairs.append((_train(bills, ledger), _train(bills, None)))  # neighbours in time share their weather
        ours, peer = (statistics.median(times) for times in zip(*pairs, strict=True))
        ratio = statistics.median(without / with_ledger for with_ledger, without in pairs)
        cost = f"{100 * (1 / ratio - 1):.2f} % of the loop"
        case = _case(f"loop, {record}", ours, round(peer, 4), "s", cost=cost)
        yield {**case, "ratio": round(ratio, 3), "floor": 0.95}


def _train(bills: list[Any], ledger: Ledger | None) -> float:
    """Run a loop whose steps take as long as 200 000 samples/s leave them, and give the processor away meanwhile."""
    pause = LOOP_BATCH / LOOP_RATE
    start = time.perf_counter()
    for step, bill in enumerate(bills):
        begun = time.perf_counter()
        while time.perf_counter() - begun < pause:
            pass
        if ledger is not None:
            ledger.deliver(bill)
            ledger.commit(bill, update=step, loss=1.0)
    return time.perf_counter() - start


if __name__ == "__main__":
    import json

    for found in cases():
        print(json.dumps(found), flush=True)
