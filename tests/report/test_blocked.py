"""Blocked samples are said wherever somebody looks for them: since when, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.cli.calling import call
from tests.report.runs import PLAN, record

from lading.ledger import Ledger
from lading.order import Plan
from lading.order.packing.file import save_index
from lading.order.packing.index import PackingIndex
from lading.report import open_run
from lading.report.summary import summarise

FIRST = PLAN.bill(2).samples[0]
NAME = PLAN.names[FIRST.dataset]


def resumed(path: Path, mark, steps: range) -> None:
    """Record more steps as a loader does that honours what was blocked by hand."""
    ledger = Ledger(path, PLAN)
    plan = ledger.begin(steps.start, loaded=mark, plan=PLAN)
    for step in steps:
        ledger.commit((plan or PLAN).bill(step))
    ledger.close()


def test_where_says_that_a_sample_is_blocked(tmp_path: Path):
    """Asked for: from the next attempt on, and no coming use is listed. Honoured: since which step. Always why."""
    mark = record(tmp_path, range(10))
    assert len(open_run(tmp_path).where(NAME, FIRST.index, until=500)) > 1
    open_run(tmp_path).block(f"{NAME}:{FIRST.index}", reason="broken markup")

    asked = open_run(tmp_path).where(NAME, FIRST.index, until=500).dicts()
    resumed(tmp_path, mark, range(10, 100))
    honoured = open_run(tmp_path).where(NAME, FIRST.index, until=500).dicts()

    for rows, step, since in ((asked, None, "from the next attempt on"), (honoured, 10, "since step 10")):
        assert [(row["step"], row["fate"]) for row in rows] == [(2, "applied"), (step, "blocked")]
        assert rows[-1]["note"] == f"blocked {since}: broken markup"


def test_a_state_keeps_no_reason_and_the_log_does(tmp_path: Path):
    """A second resume: the step is the first at which it was replaced, the reason the one that was given."""
    mark = record(tmp_path, range(10))
    open_run(tmp_path).block(f"{NAME}:{FIRST.index}", reason="broken markup")
    resumed(tmp_path, mark, range(10, 20))
    resumed(tmp_path, {**mark, "step": 10}, range(10, 15))

    (row,) = open_run(tmp_path).blocks().dicts()

    assert row == {"dataset": NAME, "index": FIRST.index, "step": 10, "reason": "broken markup"}


def test_show_lists_blocked_samples(tmp_path: Path, capsys):
    """How many, since when and why; in JSON all of them."""
    record(tmp_path, range(10))
    open_run(tmp_path).block("code:0-19", reason="broken markup")

    found = summarise(open_run(tmp_path))
    out = call(capsys, "show", tmp_path)[1]

    assert found.facts["blocked_samples"] == len(found.blocked) == 20
    assert "20 blocked samples, the first 10" in out and "broken markup" in out and "the next attempt" in out


def test_what_a_plan_is_born_with_is_blocked_since_step_0(tmp_path: Path):
    """``Loader(..., blocked=...)``: no attempt had to ask for it."""
    record(tmp_path, range(5), plan=replace(PLAN, blocked=(("code", (3, 9)),)))

    assert [(row["index"], row["step"], row["reason"]) for row in open_run(tmp_path).blocks()] == [
        (3, 0, None),
        (9, 0, None),
    ]
    assert open_run(tmp_path).where("code", 3, until=500)["fate"] == ["blocked"]


def test_where_of_a_blocked_sample_that_no_step_used_exits_1(tmp_path: Path, capsys):
    """It says since when, and that none used it."""
    record(tmp_path, range(5), plan=replace(PLAN, blocked=(("code", (3,)),)))

    code, out, _ = call(capsys, "where", tmp_path, "code", 3)

    assert code == 1 and "code:3: used 0 times" in out and "blocked since step 0" in out


def test_a_document_is_blocked_by_its_rows(tmp_path: Path, capsys):
    """Every row that holds a part of it; a document that is not there, or no document, is refused."""
    index = save_index(PackingIndex.build([5, 20, 3, 9, 4], row_length=8, overflow="split"), tmp_path)
    plan = Plan.make({"corpus": len(index)}, batch_size=2, seed=1)
    record(
        tmp_path / "run", range(2), plan=replace(plan, datasets=(replace(plan.datasets[0], location=str(index.path)),))
    )

    code, out, _ = call(capsys, "block", tmp_path / "run", "--document", "corpus:1", "--reason", "on request")
    wrong = [call(capsys, "block", tmp_path / "run", *words) for words in (["--document", "corpus"], [])]

    rows = sorted({piece.row for piece in index.rows_of_document(1)})
    assert code == 0 and f"{len(rows)} samples are blocked" in out
    assert [row["index"] for row in open_run(tmp_path / "run").blocks()] == rows
    assert [found[0] for found in wrong] == [2, 2]
    assert "expected DATASET:NUMBER" in wrong[0][2] and "which samples?" in wrong[1][2]
