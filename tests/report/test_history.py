"""The steps of a run in NumPy are what the views say in SQL, whatever happened to it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from tests.report.runs import PLAN, leave

from lading.identity import Bill, World
from lading.ledger import Ledger
from lading.report import history as history_module, open_run
from lading.report.history import NOTHING

FATES = st.sampled_from(["applied", "applied", "applied", "skipped", "delivered", "missing"])
ATTEMPT = st.fixed_dictionaries(
    {
        "world": st.integers(1, 3),
        "start": st.integers(0, 6),
        "fates": st.lists(st.lists(FATES, min_size=3, max_size=3), min_size=1, max_size=5),
        "resumes": st.booleans(),
        "closes": st.booleans(),
        "late": st.booleans(),
        "part": st.integers(1, 3),
    }
)


def attempted(path: Path, attempt: dict, loaded: dict | None) -> dict | None:
    """Record one attempt, each rank with its own fates; return what a state taken at its end says."""
    world, start = attempt["world"], attempt["start"]
    if loaded is not None:
        start = loaded["step"]
    ledgers = [
        Ledger(path, PLAN, rank=rank, world_size=world, part_rows={"batches": attempt["part"]}) for rank in range(world)
    ]
    for ledger in ledgers:
        ledger.begin(start, loaded=loaded)
    for rank, ledger in enumerate(ledgers):
        bills = [PLAN.bill(step, world=World(rank, world)) for step in range(start, start + len(attempt["fates"]))]
        acts = [(bill, fates[rank]) for bill, fates in zip(bills, attempt["fates"], strict=True)]
        if attempt["late"]:  # written as delivered, and again when its fate is known
            delivered(ledger, acts)
        for act in acts:
            delivered(ledger, [act])
            settled(ledger, *act)
        ledger.flush()
    stop = start + len(attempt["fates"])
    mark = ledgers[0].mark(stop)
    for ledger in ledgers:
        ledger.close() if attempt["closes"] or ledger._writer is None else leave(ledger)
    return None if mark is None else {**mark, "step": stop}


def delivered(ledger: Ledger, acts: list[tuple[Bill, str]]) -> None:
    """Record that batches left the loader, unless they are missing or did so before."""
    for bill, fate in acts:
        if fate != "missing" and not ledger.is_open(bill):
            ledger.deliver(bill)
    ledger.flush()


def settled(ledger: Ledger, bill: Bill, fate: str) -> None:
    """Record what became of a batch."""
    if fate == "applied":
        ledger.commit(bill, update=bill.step if bill.step % 2 else None, loss=bill.step / 8 if bill.step % 3 else None)
    elif fate == "skipped":
        ledger.skip(bill, "an overflow")


def of_sql(run) -> list[tuple]:
    """Return the rows of the view."""
    names = "attempt, step, fate, samples, digest, loss, update, epoch, time, ranks"
    return [tuple(row.values()) for row in run.sql(f"SELECT {names} FROM history ORDER BY attempt, step").dicts()]


def of_numpy(run) -> list[tuple]:
    """Return the same from the columns."""
    kept, found = run.steps.kept, []
    for row in range(len(kept["step"])):
        fate = "applied" if kept["applied"][row] else "skipped"
        loss = float(np.float32(kept["loss"][row])) if kept["losses"][row] else None
        update = None if kept["update"][row] == NOTHING else int(kept["update"][row])
        time = history_module.time_of(int(kept["time"][row]))
        counted = (int(kept["samples"][row]), int(kept["digest"][row]))
        key = (int(kept["attempt"][row]), int(kept["step"][row]), fate)
        found.append((*key, *counted, loss, update, int(kept["epoch"][row]), time, int(kept["ranks"][row])))
    return found


LIFE = {"world": 1, "start": 0, "resumes": True, "closes": False, "late": False, "part": 2}
PENDING = [{**LIFE, "fates": [["applied"] * 3, ["delivered"] * 3]}, {**LIFE, "fates": [["applied"] * 3]}]


@pytest.mark.filterwarnings("ignore:.*already, and this one starts")
@example(PENDING)
@example([{**PENDING[0], "late": True, "fates": [["applied", "delivered", "applied"]] * 3, "world": 2}])
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=25)
@given(st.lists(ATTEMPT, min_size=1, max_size=3))
def test_columns_and_views_tell_the_same_history(attempts):
    """Several ranks, crashes, resumed and replayed attempts, skipped, open and missing batches."""
    with tempfile.TemporaryDirectory() as folder:
        path, mark = Path(folder) / "run", None
        for attempt in attempts:
            mark = attempted(path, attempt, mark if attempt["resumes"] else None)
        for leaf in range(len(attempts)):
            run = open_run(path, leaf)

            assert of_numpy(run) == of_sql(run)


@pytest.mark.filterwarnings("ignore:.*already, and this one starts")
def test_a_batch_that_was_pending_at_the_checkpoint_counts_as_skipped(tmp_path):
    """The law above has it among its examples: here it is seen to be there."""
    mark = None
    for attempt in PENDING:
        mark = attempted(tmp_path / "run", attempt, mark)

    assert [row[1:3] for row in of_numpy(open_run(tmp_path / "run"))] == [
        (0, "applied"),
        (1, "skipped"),
        (2, "applied"),
    ]


@pytest.mark.filterwarnings("ignore:.*already, and this one starts")
def test_a_batch_used_after_the_checkpoint_that_was_resumed_counts_as_skipped(tmp_path):
    """The update was made, and lost with the model: whatever the row says, the model that goes on never saw it."""
    first = Ledger(tmp_path / "run", PLAN)
    first.begin(0)
    for step in (0, 1):
        first.deliver(PLAN.bill(step))
    first.commit(PLAN.bill(0))
    mark = {**first.mark(2), "step": 2}
    first.commit(PLAN.bill(1))
    first.flush()
    leave(first)
    attempted(tmp_path / "run", PENDING[1], mark)

    run = open_run(tmp_path / "run")

    fates = [row[1:3] for row in of_numpy(run)]
    assert fates == [(0, "applied"), (1, "skipped"), (2, "applied")] == [row[1:3] for row in of_sql(run)]


def test_ranks_that_do_not_fit_the_memory_together_are_added_up_in_turn(tmp_path, monkeypatch):
    """A run of many ranks is read some ranks at a time, with the same result."""
    fates = [["applied"] * 3] * 4
    attempted(tmp_path / "run", {"world": 3, "start": 0, "fates": fates, "closes": True, "late": True, "part": 2}, None)
    whole = of_numpy(open_run(tmp_path / "run"))

    monkeypatch.setattr(history_module, "_ROWS_AT_ONCE", 1)

    assert of_numpy(open_run(tmp_path / "run")) == whole
    assert [row[1] for row in whole] == [0, 1, 2, 3]


def test_a_step_that_not_all_ranks_recorded_is_not_kept(tmp_path):
    """Two ranks, of which one died a step earlier."""
    fates = [["applied"] * 2, ["applied", "missing"]]
    attempted(tmp_path / "run", {**LIFE, "world": 2, "fates": fates}, None)

    assert [row[1] for row in of_numpy(open_run(tmp_path / "run"))] == [0]


def test_an_empty_run_has_no_steps(tmp_path):
    """An attempt that recorded nothing."""
    with Ledger(tmp_path / "run", PLAN, rank=0, world_size=1) as ledger:
        ledger.begin(0)

    assert of_numpy(open_run(tmp_path / "run")) == []
