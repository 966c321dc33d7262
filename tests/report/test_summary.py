"""What ``lading show`` says of each attempt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from tests.report.runs import record

from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run, text
from lading.report.summary import summarise


def test_kept_and_rolled_back_steps_are_counted_for_each_attempt(tmp_path: Path):
    """Attempt 0 reaches 30, attempt 1 resumes at 20 and reaches 26, attempt 2 resumes at 10 of attempt 0."""
    mark = record(tmp_path, range(30))
    record(tmp_path, range(20, 26), loaded={**mark, "step": 20})
    record(tmp_path, range(10, 13), loaded={**mark, "step": 10})

    found = [(a["kept"], a["rolled_back"], a["left_behind"]) for a in summarise(open_run(tmp_path)).attempts]

    assert found == [(10, 20, 0), (0, 6, 0), (3, 0, 0)]


def test_steps_that_a_limit_left_out_are_not_kept(tmp_path: Path):
    """Three epochs of 20 steps, 10 used of each, as ``limit_train_batches=10`` does: 30 steps, not 50."""
    plan = Plan.make(320, batch_size=16)
    with Ledger(tmp_path, plan) as ledger:
        for step in (epoch * 20 + batch for epoch in range(3) for batch in range(11)):
            ledger.deliver(plan.bill(step))  # one more is fetched than used
            if step % 20 < 10:
                ledger.commit(plan.bill(step))

    found = summarise(open_run(tmp_path))

    assert [(a["kept"], a["rolled_back"], a["last"]) for a in found.attempts] == [(30, 0, 50)]
    assert found.facts["steps_applied"] == 30


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


_DIES = """
import os, sys
from pathlib import Path
from lading import Ledger
from tests.report.runs import PLAN
ledger = Ledger(sys.argv[1], PLAN, flush_every=20)
for step in range(28):
    ledger.commit(PLAN.bill(step))
    if step == 19:
        ledger.flush()
        mark = ledger.mark(20)
        print(__import__("json").dumps(mark), flush=True)
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_attempt_lost_is_a_lower_bound(tmp_path: Path):
    """Killed at 27, resumed at 20: what was on no disk was trained on all the same."""
    done = subprocess.run([sys.executable, "-c", _DIES, str(tmp_path)], capture_output=True, text=True)
    mark = json.loads(done.stdout)
    record(tmp_path, range(20, 30), loaded={**mark, "step": 20})

    found = summarise(open_run(tmp_path))

    killed, newest = found.attempts
    assert done.returncode == -9, done.stderr
    assert not killed["rolled_back_is_exact"] and newest["rolled_back_is_exact"]
    assert killed["rolled_back"] <= 8
    console = Console(width=200)
    with console.capture() as shown:
        console.print(text.summary(found))
    assert f"at least {killed['rolled_back']}" in shown.get()


def test_what_a_second_root_leaves_behind_is_told_by_show_and_verify(tmp_path: Path):
    """A new loader and a new ledger in the same folder, without a state: nothing is undone, nothing is silent."""
    record(tmp_path, range(5))
    with pytest.warns(UserWarning, match="a second root"):
        record(tmp_path, range(8))

    opened = open_run(tmp_path)

    assert summarise(opened).facts["steps_left_behind"] == 5
    said = [finding.message for finding in opened.verify().findings]
    assert any("attempt 0, steps 0 to 4, is left behind" in message for message in said)
    assert opened.verify().holds
