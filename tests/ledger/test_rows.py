"""From bills to rows: whatever is accepted can be read."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from lading.errors import CorruptLedgerError, LedgerError
from lading.identity import Deviation
from lading.ledger import Ledger
from lading.ledger.deviations import deviations_from
from lading.ledger.rows import TOGETHER, Rows
from lading.ledger.schema import rows_table, typed
from lading.order import Plan
from lading.report import open_run
from lading.runtime.fields import Origin

PLAN = Plan.make({"code": 97}, batch_size=8, seed=3)
LONG = Plan.make({"code": 1000}, batch_size=8, seed=3)
ORIGIN = Origin("a row", CorruptLedgerError)

texts = st.text(st.characters(), max_size=40) | st.sampled_from(["x" * 70_000, "\ud83d" * 5000, "[" * 60_000])
numbers = st.integers(-(1 << 70), 1 << 70) | st.integers(0, 12)
deviations = st.builds(Deviation, numbers, texts, st.just(0), numbers, st.none() | numbers, texts)
changes = st.fixed_dictionaries(
    {},
    optional={
        "epoch": numbers,
        "chunk": st.none() | numbers,
        "position": numbers,
        "deviations": st.lists(deviations, max_size=3).map(tuple),
        "idx": st.just(np.full(8, -3)),
        "slots": st.just(np.full(8, 1 << 40)),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(changes, texts, st.dictionaries(texts, st.floats(), max_size=3)), min_size=1, max_size=6))
@example([({"deviations": tuple(Deviation(0, "skipped", 0, 0, None, "[" * 60_000) for _ in range(40))}, "", {})])
def test_whatever_is_accepted_can_be_read(given_rows):
    """A row that cannot be written is named, and the others are there."""
    rows = Rows("names")
    for step, (changed, reason, metrics) in enumerate(given_rows):
        rows.deliver(PLAN.bill(step).replace(**changed), 5, None)
        rows.settle((step,), "skipped", 6, metrics=metrics, reason=reason)

    tables = rows.take()

    tables = {name: typed(rows_table(name, [packed]), name) for name, packed in tables.items()}
    found = tables["batches"].to_pylist() if "batches" in tables else []
    for row in found:
        deviations_from(row["exceptions"] or "[]", ORIGIN)
        names = [name for name, _ in row["metrics"] or ()]
        assert len(set(names)) == len(names)
    left_out = [step for step in range(len(given_rows)) if step not in {row["step"] for row in found}]
    assert all(any(f"step {step} " in problem for problem in rows.problems) for step in left_out)
    assert all(given_rows[step][0] for step in left_out)  # a bill that is as it should be is never left out
    assert rows.take() == {}


@pytest.mark.parametrize("steps", [1, TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER])
def test_every_settled_row_is_taken_once_and_in_order(steps):
    """Whether they were packed together already or wait for others."""
    rows = Rows("names")
    for step in range(steps):
        rows.deliver(LONG.bill(step), 5, None)
        rows.settle((step,), "applied", 6, loss=0.5)

    tables = rows.take()

    assert rows_table("batches", [tables["batches"]])["step"].to_pylist() == [*range(steps)]
    assert rows_table("samples", [tables["samples"]])["step"].to_pylist() == [s for s in range(steps) for _ in range(8)]
    assert not rows.take()


def test_rows_that_ctrl_c_broke_off_are_packed_next(monkeypatch):
    """None is lost, and none is there twice."""
    rows = Rows("digest")
    made, broken = Rows._fate_of, [7]

    def broken_off(self, row, *fate):
        if row[0].step in broken:
            broken.clear()
            raise KeyboardInterrupt
        return made(self, row, *fate)

    monkeypatch.setattr(Rows, "_fate_of", broken_off)
    for step in range(TOGETHER):
        rows.deliver(LONG.bill(step), 5, None)
    rows.settle(range(TOGETHER - 1), "applied", 6, loss=0.5)
    with pytest.raises(KeyboardInterrupt):
        rows.settle((TOGETHER - 1,), "applied", 6, loss=0.5)

    assert rows_table("batches", [rows.take()["batches"]])["step"].to_pylist() == [*range(TOGETHER)]


def test_an_exception_of_any_text_is_read_again(tmp_path: Path):
    """Surrogates of a broken file name, and a text of two megabytes."""
    bill, reason = PLAN.bill(0), "'caf\udce9.wav' " + "x" * (1 << 21)
    wrong = Deviation(int(bill.slots[0]), "skipped", 0, int(bill.idx[0]), None, reason)
    padding = np.arange(8) == 0
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(bill.replace(deviations=(wrong,), is_padding=padding))
        ledger.skip(PLAN.bill(1), "the reader said \ud83d")
        ledger.commit(PLAN.bill(2), loss=1.0, **{"l\udcffr": 0.1})

    run = open_run(tmp_path)

    assert run.verify().holds
    assert run.bad().dicts()[0]["reason"].startswith(r"'caf\udce9.wav' xxx")
    assert run.step(1).reason == r"the reader said \ud83d"
    assert run.history.dicts()[2]["metrics"] == {r"l\udcffr": 0.1}


@pytest.mark.parametrize("seconds", [-5.0, 1e15])
def test_a_clock_that_is_far_off_writes_what_readers_take(tmp_path: Path, monkeypatch, seconds: float):
    """A machine without a battery begins before 1970; the run is as sound as any."""
    monkeypatch.setattr(time, "time", lambda: seconds)
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(PLAN.bill(0), loss=1.0)

    monkeypatch.undo()
    assert open_run(tmp_path).verify().holds


def test_an_event_that_no_reader_takes_is_refused_at_the_call(tmp_path: Path):
    """A validation of NaN would have made the run unreadable."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.commit(PLAN.bill(0))
        with pytest.raises(LedgerError, match="finite"):
            ledger.validated(1, {"metric": float("nan"), "loss": 1.0, "on": {}})
        ledger.validated(1, {"metric": 0.5, "loss": 1.0, "on": {}})

    assert open_run(tmp_path).verify().holds
