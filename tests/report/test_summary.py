"""What ``lading show`` says of each attempt."""

from __future__ import annotations

from pathlib import Path

from tests.report.runs import record

from lading.order import Plan
from lading.report import open_run
from lading.report.summary import summarise


def test_kept_and_rolled_back_steps_are_counted_for_each_attempt(tmp_path: Path):
    """Attempt 0 reaches 30, attempt 1 resumes at 20 and reaches 26, attempt 2 resumes at 10 of attempt 0."""
    mark = record(tmp_path, range(30))
    record(tmp_path, range(20, 26), loaded={**mark, "step": 20})
    record(tmp_path, range(10, 13), loaded={**mark, "step": 10})

    found = [(a["kept"], a["rolled_back"], a["left_behind"]) for a in summarise(open_run(tmp_path)).attempts]

    assert found == [(10, 20, 0), (0, 6, 0), (3, 0, 0)]


def test_a_dataset_that_grew_inside_an_epoch_is_told_by_show_and_verify(tmp_path: Path):
    """Samples of the running epoch repeat or are missed; at the border of an epoch none do."""
    mark = record(tmp_path / "inside", range(10))
    grown = Plan.make({"code": 710, "prose": 301}, batch_size=16, seed=3)
    record(tmp_path / "inside", range(10, 12), plan=grown, loaded=mark, allow_changed_plan=True)
    small = [Plan.make(48, batch_size=16, seed=seed) for seed in (0, 1)]
    mark = record(tmp_path / "border", range(3), plan=small[0])
    record(tmp_path / "border", range(3, 5), plan=small[1], loaded=mark, allow_changed_plan=True)

    text = "attempt 1 follows another plan from step 10 on (dataset 'code' 700 -> 710 samples)"
    inside, border = (open_run(tmp_path / name) for name in ("inside", "border"))
    assert summarise(inside).facts["plan_changed"] == f"{text}: samples of epoch 0 repeat or are missed"
    assert [f.message for f in inside.verify().findings] == [f"{text}: samples of epoch 0 repeat or are missed"]
    assert inside.verify().holds
    assert summarise(border).facts["plan_changed"].endswith("follows another plan from step 3 on (seed 0 -> 1)")
