"""Checkpoints of a Trainer say what they learned from, without a line of code, and stay the checkpoints they are."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from lading.ledger.waybill import stamping
from lading.report import open_checkpoint
from lading.report.checkpoint.check import check

pytest.importorskip("transformers", reason="transformers is not installed")
SCRIPT = Path(__file__).parent / "scripts" / "trainer.py"
spec = importlib.util.spec_from_file_location("trainer_script", SCRIPT)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
from lading.train.transformers import account  # noqa: E402


def test_a_model_that_was_loaded_from_a_checkpoint_has_it_in_its_family(tmp_path, caplog):
    """Pretrain, load, tune: no line of code names the parent; what was saved by hand at the end has a waybill, too."""
    account(script.make(tmp_path / "first", 4, num_train_epochs=1), tmp_path / "run-1").train()
    tuning = script.make(tmp_path / "second", 4, num_train_epochs=1, data=script.Texts(20, 51))
    loaded = script.GPT2LMHeadModel.from_pretrained(tmp_path / "first" / "checkpoint-6")
    tuning.model = tuning.model_wrapped = loaded  # the second is what Trainer trains

    account(tuning, tmp_path / "run-2").train()
    tuning.save_model(str(tmp_path / "final"))

    final = open_checkpoint(tmp_path / "final")
    assert "has a waybill" in caplog.text
    assert check(final).holds
    assert [Path(member.where).name for member in final.family()] == ["final", "checkpoint-6"]
    moments = [member.moment for member in final.family()]
    assert [(m.step, m.update) for m in moments] == [(5, 2), (12, 5)]
    before = {index for batch in range(12) for _, index in _samples(tmp_path / "run-1", batch)}
    assert {i for i in range(50) if _in_run(final.seen("data", i), moments[1].run)} == before
    assert {i for i in range(20) if _in_run(final.seen("data", i), moments[0].run)} == set(range(20))


def _samples(run: Path, step: int):
    from lading import open_run

    return [(row["name"], row["index"]) for row in open_run(run).step(step).samples]


def _in_run(seen, run: str) -> bool:
    return any(use["run"] == run for use in seen.uses)


@pytest.mark.parametrize("limit", [1, 2])
def test_the_same_folders_stay_as_without_lading(tmp_path, monkeypatch, limit):
    """Trainer keeps the newest by their times; hashing is slower than training, so waybills come late."""
    real = stamping.hashed
    monkeypatch.setattr(stamping, "hashed", lambda *args: (time.sleep(0.4), real(*args))[1])
    script.make(tmp_path / "plain", 4, save_steps=2, save_total_limit=limit).train()

    trainer = script.make(tmp_path / "accounted", 4, save_steps=2, save_total_limit=limit)
    account(trainer, tmp_path / "run").train()

    folders = [sorted(p.name for p in (tmp_path / kind).glob("checkpoint-*")) for kind in ("plain", "accounted")]
    assert folders[0] == folders[1]
    assert len(folders[1]) == limit
    for name in folders[1]:
        assert check(open_checkpoint(tmp_path / "accounted" / name)).holds


def test_a_resumed_training_writes_the_waybill_of_what_it_saved(tmp_path):
    """A folder that is saved again under its name has no waybill of the one before."""
    account(script.make(tmp_path / "t", 4, num_train_epochs=1, save_steps=2), tmp_path / "run").train()
    before = open_checkpoint(tmp_path / "t" / "checkpoint-4").waybill

    again = script.make(tmp_path / "t", 4, num_train_epochs=1, save_steps=2)
    account(again, tmp_path / "run").train(resume_from_checkpoint=str(tmp_path / "t" / "checkpoint-2"))

    after = open_checkpoint(tmp_path / "t" / "checkpoint-4")
    assert (before.moment.attempt, after.waybill.moment.attempt) == (0, 1)
    assert check(after).holds
    assert after.totals().dicts()[0]["samples"] == 32
