"""A kill before every disk call of a run, also in the middle of a write: nothing that was flushed is lost."""

from __future__ import annotations

import json
import mmap
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.crash_points import crash_points, leftovers

from lading.identity import World
from lading.ledger import Ledger
from lading.ledger.rank_store import warm_up
from lading.order import Block, Plan
from lading.report import open_run

PLAN = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)
STEPS = 12


class Shared:
    """What a child said before it died; memory that a fork shares."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 4096)

    def say(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self._memory[: len(text) + 1] = text + b"\0"

    def heard(self) -> Any:
        text = bytes(self._memory).partition(b"\0")[0]
        return json.loads(text) if text else None

    def forget(self) -> None:
        self._memory[0:1] = b"\0"


def train(path: Path, record: str, ranks: int, shared: Shared, start: int = 0, loaded: Any = None) -> None:
    """Train some steps on all ranks of one process, with parts, an event, flushes and states."""
    options = {"record": record, "world_size": ranks, "part_rows": {"batches": 4}, "flush_every": 1000}
    ledgers = [Ledger(path, PLAN, rank=rank, **options) for rank in range(ranks)]
    plans = [ledger.begin(start, loaded=loaded) or PLAN for ledger in ledgers]
    for step in range(start, STEPS):
        if step == 5:
            event = Block(7, 1, (2,), "bad")
            plans = [plan.with_event(event) for plan in plans]
            for ledger in ledgers:
                ledger.event(event)
        for rank, (ledger, plan) in enumerate(zip(ledgers, plans, strict=True)):
            bill = plan.bill(step, world=World(rank, ranks))
            ledger.deliver(bill, {"x": bill.idx})
            ledger.commit(bill, update=step, loss=1.0)
        if step % 3 == 2:
            for ledger in ledgers:
                ledger.flush()
            if step < 5:
                shared.say({**(ledgers[0].mark() or {}), "step": step + 1})
    for ledger in ledgers:
        ledger.close()
    shared.say("done")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("record", "ranks", "torn"), [("names", 1, True), ("digest", 3, False)])
def test_nothing_flushed_is_lost_wherever_a_process_dies(tmp_path: Path, record: str, ranks: int, torn: bool):
    """Every 29th disk call; the campaign takes all of them, for every kind of record."""
    survive(tmp_path, record, ranks, torn=torn, every=29)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("record", ["digest", "names", "content"])
def test_every_disk_call(tmp_path: Path, record: str, ranks: int, torn: bool):
    """All of them."""
    print(record, ranks, "torn" if torn else "killed", survive(tmp_path, record, ranks, torn=torn, every=1), "points")


def survive(home: Path, record: str, ranks: int, *, torn: bool, every: int) -> int:
    """Kill before each disk call, look, resume, look again; return the number of points."""
    warm_up()
    shared, points = Shared(), 0
    for number in crash_points(
        lambda: train(home / "run", record, ranks, shared), home / "run", (os, "pwrite"), torn=torn, every=every
    ):
        said, points = shared.heard(), points + 1
        look(home / "run", said, f"call {number}")
        loaded = said if isinstance(said, dict) else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a second root, where no state was taken before the kill
            train(home / "run", record, ranks, shared, 0 if loaded is None else loaded["step"], loaded)
        run = open_run(home / "run")
        assert run.history["step"] == list(range(STEPS)), f"after call {number}"
        verdict = run.verify()
        assert verdict.holds, (number, verdict.faults)
        assert not leftovers(home / "run"), f"after call {number}"
        (home / "run").rename(home / f"{number}")
        shared.forget()
    return points


def look(path: Path, said: Any, where: str) -> None:
    """Check what a killed process left."""
    if not (path / "run.json").exists():
        assert said is None
        return
    run = open_run(path)
    flushed = STEPS if said == "done" else 0 if said is None else said["step"]
    verdict = run.verify(allow_empty=True)
    assert verdict.holds, (where, verdict.faults)
    assert run.history["step"] == list(range(len(run.history)))
    assert len(run.history) >= flushed, where
