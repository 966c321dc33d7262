"""Blocked by hand: honoured from the next attempt's first step, by substitutes, without renumbering."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.report.runs import PLAN, record

from lading.errors import ConfigError, LedgerError
from lading.ledger import Ledger
from lading.loader import Loader
from lading.report import open_run

DATA = {"code": list(range(60)), "prose": list(range(40))}


def train(path: Path, state, steps: int):
    """Train some steps with a Lading loader and the ledger as its tracker; return the loader's state."""
    ledger = Ledger(path)
    loader = Loader(DATA, 10, seed=2, tracker=ledger)
    if state is not None:
        loader.load_state_dict(state)
    seen = []
    while len(seen) < steps:
        for _, bill in loader.with_bills():
            ledger.commit(bill, loss=1.0)
            seen.append(bill)
            if len(seen) == steps:
                break
    state = loader.state_dict()
    ledger.close()
    return state, seen, loader.plan


def test_a_blocked_sample_is_replaced_from_the_next_attempt_on(tmp_path: Path):
    """The loader asks its ledger; `where` and `verify` know."""
    state, _, plan = train(tmp_path, None, 5)
    victim = plan.bill(7).samples[4]
    name = plan.names[victim.dataset]
    assert open_run(tmp_path).block(f"{name}:{victim.index}", reason="garbage") == [victim]

    _, seen, followed = train(tmp_path, state, 10)

    (used,) = [b for b in seen if b.step == 7]
    assert victim not in used.samples
    assert used.samples[:4] == plan.bill(7).samples[:4]
    substitute = used.samples[4].index
    run = open_run(tmp_path)
    assert run.verify().holds
    assert 7 not in run.where(name, victim.index)["step"]
    assert 7 in run.where(name, substitute)["step"]
    assert run.step(7).samples.dicts()[4]["note"] == f"in place of {victim.index} (blocked)"
    assert [e.kind for e in followed.events] == ["block"]


def test_a_block_survives_a_resume_from_before_it(tmp_path: Path):
    """An older checkpoint knows nothing of the block; the ledger does."""
    state, _, plan = train(tmp_path, None, 5)
    victim = plan.bill(8).samples[0]
    open_run(tmp_path).block(f"{plan.names[victim.dataset]}:{victim.index}")
    train(tmp_path, state, 3)

    _, seen, _ = train(tmp_path, state, 6)

    assert all(victim not in bill.samples for bill in seen)
    assert open_run(tmp_path).verify().holds


def test_a_step_can_be_blocked(tmp_path: Path):
    """Every sample it held; asking twice adds nothing."""
    record(tmp_path, range(10))
    run = open_run(tmp_path)

    assert run.block("step:3") == PLAN.bill(3).samples
    assert open_run(tmp_path).block("step:3", "code:1-2", "code:2") == [
        s for s in [(0, 1), (0, 2)] if s not in PLAN.bill(3).samples
    ]


def test_a_loader_that_does_not_ask_is_warned(tmp_path: Path):
    """Without begin() the block cannot be honoured."""
    record(tmp_path, range(5))
    open_run(tmp_path).block("code:1")

    with (
        pytest.warns(UserWarning, match="1 samples were blocked by hand and this loader does not know"),
        Ledger(tmp_path, PLAN) as ledger,
    ):
        ledger.commit(PLAN.bill(5))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("code", "'code' names no sample: expected dataset:index, dataset:first-last or step:number"),
        ("poems:3", "no dataset 'poems' in this run"),
        ("code:700", "'code:700' is outside the dataset: 'code' has samples 0 to 699"),
    ],
)
def test_wrong_specs_are_named(rolled_back: Path, spec: str, message: str):
    """Each error says what was expected."""
    with pytest.raises(ConfigError, match=message):
        open_run(rolled_back).block(spec)


def test_a_whole_dataset_cannot_be_blocked(tmp_path: Path):
    """One must be left to take the places."""
    record(tmp_path, range(3))

    with pytest.raises(ValueError, match=r"all 301 samples of dataset .prose. are blocked"):
        open_run(tmp_path).block("prose:0-300")
    assert open_run(tmp_path).evidence.log.blocks == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a file system that can be mounted read-only")
def test_a_read_only_run_says_that_nothing_is_blocked(tmp_path: Path):
    """No traceback, and the way out."""
    record(tmp_path / "run", range(3))
    mounted = subprocess.run(["mount", "--bind", tmp_path / "run", tmp_path / "run"], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", tmp_path / "run"], check=True)
        with pytest.raises(LedgerError, match=r"log cannot be written: Read-only file system\. Nothing is blocked"):
            open_run(tmp_path / "run").block("code:1")
    finally:
        subprocess.run(["umount", "-l", tmp_path / "run"], check=True)
