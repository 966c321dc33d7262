"""verify: a step is every rank's, and a record of nothing holds nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from tests.cli.calling import ask, call
from tests.report.runs import PLAN, leave, record

from lading import NumpyLoader
from lading.identity import World
from lading.ledger import Ledger
from lading.report import open_run


def two_ranks(path: Path, first: range, second: range, *, end: str = "close") -> None:
    """Record steps that differ between two ranks, and end both in the same way."""
    ledgers = [Ledger(path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for rank, (ledger, steps) in enumerate(zip(ledgers, (first, second), strict=True)):
        for step in steps:
            ledger.commit(PLAN.bill(step, world=World(rank, 2)))
        ledger.flush()
    for ledger in ledgers:
        leave(ledger) if end == "crash" else ledger.close(interrupted=end == "interrupt")


def test_ranks_that_ended_with_different_numbers_of_steps_are_a_fault(tmp_path: Path):
    """Rank 0 settled eight, rank 1 three: five steps are nobody's history, and it is said whose."""
    two_ranks(tmp_path, range(8), range(3))

    code, out = ask("verify", tmp_path, "--json")

    (finding,) = json.loads(out)["findings"]
    assert (code, finding["level"], finding["step"]) == (1, "fault", 3)
    assert "5 steps of attempt 0 were settled by rank 0 and not by rank 1, the first is 3" in finding["message"]
    assert "rank 1 has no row for it" in finding["message"]


def test_a_step_that_one_rank_left_open_is_a_fault(tmp_path: Path):
    """Delivered to both and used by one."""
    ledgers = [Ledger(tmp_path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        for step in range(4):
            ledger.deliver(bill := PLAN.bill(step, world=World(rank, 2)))
            if (rank, step) != (1, 1):
                ledger.commit(bill)
    for ledger in ledgers:
        ledger.close()

    (finding,) = open_run(tmp_path).verify().faults

    assert finding.step == 1
    assert "rank 1 left it open" in finding.message
    assert open_run(tmp_path).verify().findings == [finding]


@pytest.mark.parametrize("end", ["crash", "interrupt"])
def test_ranks_that_were_broken_off_at_different_steps_are_noted(tmp_path: Path, end: str):
    """One was a step ahead when both were killed: that is how it is."""
    two_ranks(tmp_path, range(8), range(7), end=end)

    verdict = open_run(tmp_path).verify()

    assert verdict.holds
    assert "rank 1" in verdict.findings[-1].message
    assert verdict.findings[-1].step == 7


def test_a_rank_that_is_still_writing_may_be_behind(tmp_path: Path):
    """A run is looked at while it goes on."""
    ledgers = [Ledger(tmp_path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        for step in range(3 - rank):
            ledger.commit(PLAN.bill(step, world=World(rank, 2)))
        ledger.flush()

    verdict = open_run(tmp_path).verify()
    for ledger in ledgers:
        ledger.close()

    assert verdict.findings == []
    assert verdict.steps == 2


def test_a_step_that_only_one_rank_recorded_in_the_middle_names_the_other(tmp_path: Path):
    """A rank whose writer failed for a while."""
    ledgers = [Ledger(tmp_path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        for step in range(6):
            if (rank, step) != (1, 2):
                ledger.commit(PLAN.bill(step, world=World(rank, 2)))
    for ledger in ledgers:
        ledger.close()

    (finding,) = open_run(tmp_path).verify().faults

    assert "the first is 2: rank 1 has no row for it" in finding.message


def test_a_loop_that_never_commits_does_not_hold(tmp_path: Path, capsys):
    """Its record says nothing of what the model was trained on."""
    with Ledger(tmp_path, PLAN) as ledger:
        for step in range(5):
            ledger.deliver(PLAN.bill(step))

    code, out = ask("verify", tmp_path)

    assert code == 1
    assert "5 steps delivered, none committed" in " ".join(out.split())
    assert "does not hold" in out
    assert call(capsys, "verify", tmp_path, "--allow-empty")[0] == 0


def test_the_way_out_is_the_call_that_the_run_needs(tmp_path: Path):
    """A tracked run has no plan, and its loader a commit of its own."""
    for name, plan in {"planned": PLAN, "tracked": None}.items():
        with Ledger(tmp_path / name, plan, names=() if plan else ["code", "prose"]) as ledger:
            ledger.deliver(PLAN.bill(0))

    planned, tracked = (open_run(tmp_path / name).verify().faults[0].message for name in ("planned", "tracked"))

    assert "Call ledger.commit(bill) after each update" in planned
    assert "Call tracked.commit(loss=...)" in tracked


def test_a_resumed_loop_that_never_commits_does_not_hold(tmp_path: Path):
    """What came before is no excuse."""
    mark = record(tmp_path, range(5))
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(5, loaded=mark)
        for step in range(5, 9):
            ledger.deliver(PLAN.bill(step))

    (finding,) = open_run(tmp_path).verify().faults

    assert "attempt 1: 4 steps delivered, none committed" in finding.message
    assert open_run(tmp_path).verify(allow_empty=True).holds


def test_an_empty_run_does_not_hold(tmp_path: Path, capsys):
    """It was opened, and nothing came."""
    with Ledger(tmp_path, PLAN) as ledger:
        ledger.begin(0)

    code, out, _ = call(capsys, "verify", tmp_path)

    assert (code, "no step was delivered" in " ".join(out.split())) == (1, True)
    assert call(capsys, "verify", tmp_path, "--allow-empty")[0] == 0


def test_the_second_folder_of_two_ranks_does_not_hold(tmp_path: Path, capsys):
    """Two ranks that were given different folders have half a run each."""
    ledgers = [Ledger(tmp_path / f"run{rank}", PLAN, rank=rank, world_size=2) for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        ledger.commit(PLAN.bill(0, world=World(rank, 2)))
        ledger.flush()
    for ledger in ledgers:
        leave(ledger)

    assert [call(capsys, "verify", tmp_path / f"run{rank}")[0] for rank in range(2)] == [1, 1]


def test_a_run_whose_first_batch_is_under_way_does_not_hold_yet(tmp_path: Path, capsys):
    """Neither wrong nor right: a watcher asks again."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.deliver(PLAN.bill(0))
    ledger.flush()

    code, out, _ = call(capsys, "verify", tmp_path)
    found = open_run(tmp_path).verify().to_dict()
    ledger.commit(PLAN.bill(0))
    ledger.close()

    assert (code, "not yet: 1 step delivered, none committed" in out) == (0, True)
    assert found["not_yet"]
    assert not open_run(tmp_path).verify().not_yet


def test_two_empty_runs_are_not_equal(tmp_path: Path, capsys):
    """There is nothing that could be."""
    for name in ("a", "b"):
        with Ledger(tmp_path / name, PLAN) as ledger:
            ledger.deliver(PLAN.bill(0))

    code, out, _ = call(capsys, "diff", tmp_path / "a", tmp_path / "b")

    assert code == 1
    assert "nothing to compare: neither run has a step in its history" in out


def test_steps_trained_without_the_books_are_missed_when_they_are_opened_again(tmp_path: Path):
    """A checkpoint of a recorded run, resumed without a ledger, and recorded again from a later one."""
    rows, state = [{"x": float(i)} for i in range(60)], None
    for last, is_recorded in ((4, True), (8, False), (14, True)):
        with Ledger(tmp_path) if is_recorded else contextlib.nullcontext() as ledger:
            loader = NumpyLoader(rows, 4, seed=1, tracker=ledger)
            if state is not None:
                loader.load_state_dict(state)
            for _, bill in loader.with_bills():
                if ledger is not None:
                    ledger.commit(bill)
                if bill.step == last:
                    break
            state = loader.state_dict()

    verdict = open_run(tmp_path).verify()
    assert not verdict.holds
    assert "4 steps are missing from attempt 0, the first is 5: no rank recorded it" in verdict.faults[0].message
