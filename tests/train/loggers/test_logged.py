"""Loggers people have: what a run is fed shows up in TensorBoard and Weights & Biases."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from lading import Ledger, Loader, open_run, track
from lading.loader.note import MarksStates
from lading.train.loggers import logged

SOURCES = {"code": np.arange(60), "prose": np.arange(40)}


class Kept:
    """A third sink, as the recipe writes one."""

    def __init__(self):
        self.records, self.said, self.closed = [], {}, None

    def scalars(self, values, step):
        self.records.append((step, dict(values)))

    def facts(self, facts):
        self.said.update(facts)

    def close(self, run):
        self.closed = run


def train(run: Path, *sinks, steps=20, loss=lambda step: 1.0):
    """Train for some steps and close the ledger."""
    with logged(Ledger(run), *sinks, every=5) as ledger:
        loader = Loader(SOURCES, batch_size=5, weights={"code": 0.8, "prose": 0.2}, tracker=ledger)
        for _, bill in loader.with_bills():
            ledger.commit(bill, loss=loss(bill.step))
            if bill.step + 1 == steps:
                break
        return loader


def test_shares_passes_losses_and_the_plan_reach_a_sink(tmp_path):
    """Every few commits, with the step they belong to; and the ledger is the ledger."""
    kept = Kept()

    loader = train(tmp_path / "run", kept)

    steps = [step for step, _ in kept.records]
    last = kept.records[-1][1]
    assert steps == [4, 9, 14, 19]
    assert last["lading/shares/code"] == pytest.approx(0.8, abs=0.1)
    assert last["lading/passes/code"] == pytest.approx(80 / 60, abs=0.05)
    assert last["lading/loss"] == 1.0
    assert kept.said["lading/plan"] == loader.plan.fingerprint
    assert kept.closed == tmp_path / "run"
    assert open_run(tmp_path / "run").verify().holds


def test_a_spike_has_a_score(tmp_path):
    """A loss far above the usual is said at the step where it happens."""
    kept = Kept()

    train(tmp_path / "run", kept, loss=lambda step: 9.0 if step == 19 else 1.0 + step % 3 / 100)

    assert kept.records[-1][1]["lading/spike_score"] > 5
    assert abs(kept.records[-2][1]["lading/spike_score"]) < 5


def test_tensorboard_reads_what_was_written(tmp_path):
    """Real event files, read back by TensorBoard's own reader."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from lading.train.loggers import TensorBoard

    loader = train(tmp_path / "run", TensorBoard(tmp_path / "events"))

    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    shares = events.Scalars("lading/shares/code")
    assert [event.step for event in shares] == [4, 9, 14, 19]
    assert events.Tensors("lading/plan")[0].tensor_proto.string_val[0].decode() == loader.plan.fingerprint


def whole(path: Path, words: bytes) -> bytes:
    """Return a file once it holds some words: W&B's own process writes it, and may end after ``finish``."""
    end = time.monotonic() + 600
    while words not in path.read_bytes() and time.monotonic() < end:
        time.sleep(0.1)
    return path.read_bytes()


def test_an_offline_run_of_weights_and_biases_holds_it(tmp_path, monkeypatch):
    """A real offline run: its history, its configuration, and the folder as an artifact."""
    wandb = pytest.importorskip("wandb")
    from lading.train.loggers import WandB

    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="lading")
    loader = train(tmp_path / "run", WandB(run))
    summary, config, folder = dict(run.summary), dict(run.config), Path(run.dir).parent
    run.finish()

    written = whole(next(folder.glob("run-*.wandb")), b"lading/shares/code")
    assert summary["lading/step"] == 19
    assert config["lading/plan"] == loader.plan.fingerprint
    assert b"lading/shares/code" in written
    assert json.dumps(loader.plan.fingerprint).encode() in written


def test_a_state_names_the_attempt_of_a_logged_ledger(tmp_path):
    """So that a resume knows its parent; by the class, not by passing attributes on."""
    assert isinstance(logged(Ledger(tmp_path / "run")), MarksStates)

    loader = train(tmp_path / "run", steps=7)
    state = loader.state_dict()

    assert state["run"] and state["attempt"] == 0 and state["launch"]
    again = Loader(SOURCES, batch_size=5, weights={"code": 0.8, "prose": 0.2})
    again.load_state_dict(state)
    with logged(Ledger(tmp_path / "run"), Kept()) as ledger:
        again.tracker = ledger
        for _, bill in again.with_bills():
            ledger.commit(bill)
    assert open_run(tmp_path / "run").history["attempt"] == [0] * 7 + [1] * 13


def test_a_tracked_loader_notifies_sinks_too(tmp_path):
    """Counts of this rank, without a plan; and a resume begins in the ledger behind."""
    from torch.utils.data import DataLoader

    kept = Kept()
    ledger = logged(Ledger(tmp_path / "run", names=["points"]), kept, every=2)
    loader = track(DataLoader(np.arange(12), batch_size=3), ledger, names=["points"])
    for _, bill in loader.with_bills():
        ledger.commit(bill, loss=1.0)
    state = loader.state_dict()
    ledger.close()

    assert [(step, values["lading/shares/points"]) for step, values in kept.records] == [(1, 1.0), (3, 1.0)]
    again = logged(Ledger(tmp_path / "run"), Kept())
    loader = track(DataLoader(np.arange(12), batch_size=3), again, names=["points"])
    loader.load_state_dict(state)
    for _, bill in loader.with_bills():
        again.commit(bill)
    again.close()
    assert open_run(tmp_path / "run").history["attempt"] == [0] * 4 + [1] * 4
