"""Metrics along history: what SQL says of them, whatever attempts and ranks there were."""

from __future__ import annotations

import math

from tests.report.runs import record

from lading.identity import World
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run

PLAN = Plan.make({"code": 700, "prose": 301}, batch_size=16, seed=3)


def by_sql(run) -> dict[str, list[tuple[int, int, float]]]:
    """Return the metrics of history as DuckDB finds them."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for row in run.sql("SELECT attempt, step, metrics FROM history ORDER BY attempt, step").dicts():
        for name, value in dict(row["metrics"] or {}).items():
            found.setdefault(name, []).append((row["attempt"], row["step"], value))
    return found


def test_metrics_are_those_of_history(tmp_path):
    """Of two attempts on two ranks, some rows in parts and some in tails: what was undone is left out."""
    mark = None
    for start, stop in ((0, 60), (40, 90)):
        ledgers = [Ledger(tmp_path, PLAN, rank=r, world_size=2, part_rows={"batches": 16}) for r in range(2)]
        for ledger in ledgers:
            ledger.begin(start, loaded=None if mark is None else {**mark, "step": start})
        for step in range(start, stop):
            for rank, ledger in enumerate(ledgers):
                more = {"lr": step + 1000.0 * rank} | ({"rare": math.nan} if step % 7 == 0 else {})
                ledger.deliver(PLAN.bill(step, world=World(rank, 2)))
                ledger.commit(PLAN.bill(step, world=World(rank, 2)), update=step, loss=1.0, **more)
        mark = ledgers[0].mark()
        for ledger in ledgers:
            ledger.close()
    run = open_run(tmp_path)

    found = run.metrics()

    rows = {name: [tuple(row.values()) for row in table.dicts()] for name, table in found.items()}
    assert rows["lr"] == by_sql(run)["lr"] == [(0 if s < 40 else 1, s, float(s)) for s in range(90)]
    assert [row[:2] for row in rows["rare"]] == [row[:2] for row in by_sql(run)["rare"]]
    assert all(math.isnan(row[2]) for row in rows["rare"])


def test_a_run_without_metrics_or_without_steps_has_none(tmp_path):
    """An empty answer, not an error."""
    with Ledger(tmp_path / "plain", PLAN) as ledger:
        ledger.commit(PLAN.bill(0), loss=1.0)
    ledger = Ledger(tmp_path / "empty", PLAN)
    ledger.begin(0)
    ledger.close()

    assert open_run(tmp_path / "plain").metrics() == {} == open_run(tmp_path / "empty").metrics()


def test_what_a_crash_left_in_the_tail_is_there_too(tmp_path):
    """A run that was killed after a flush."""
    record(tmp_path, range(30), close=False)

    assert len(open_run(tmp_path).metrics()["lr"]) == 30
