"""Every checkpoint that Accelerate saves has a waybill, without a line at the save."""

from __future__ import annotations

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration

from lading import Columns, Ledger, Loader
from lading.errors import ResumeError
from lading.ledger.waybill.waybill import own_path, read_waybill
from lading.report import open_checkpoint, open_run
from lading.report.checkpoint.check import check
from lading.train.accelerate import describe_saves


@pytest.fixture
def training(tmp_path):
    """Return (accelerator, ledger, loader, a function that trains some steps)."""
    config = ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True, total_limit=1)
    accelerator = Accelerator(cpu=True, project_config=config)
    ledger = Ledger(tmp_path / "run")
    x = torch.arange(24.0)[:, None]
    loader = Loader({"points": Columns(x=x)}, batch_size=4, seed=1, tracker=ledger)
    model = torch.nn.Linear(1, 1)
    model, loader = accelerator.prepare(model, loader)
    describe_saves(accelerator, ledger, loader)
    batches = loader.with_bills()

    def train(steps: int) -> list[int]:
        bills = [next(batches)[1] for _ in range(steps)]
        for bill in bills:
            ledger.commit(bill, update=bill.step)
        return [index for bill in bills for _, index in bill.samples]

    yield accelerator, ledger, loader, train
    ledger.close()


def test_every_save_has_a_waybill_and_the_same_folders_stay(training):
    """Named by Accelerate itself, of which one is kept; the last one knows what was used before it, and no more."""
    accelerator, ledger, _, train = training
    used = train(2)
    accelerator.save_state()
    used += train(1)
    last = accelerator.save_state()
    train(1)
    ledger.close()

    opened = open_checkpoint(last)

    assert [path.name for path in last.parent.iterdir()] == ["checkpoint_1"]
    assert check(opened).holds and opened.waybill.moment.step == 3
    assert {i for i in range(24) if opened.seen("points", i).answer} == set(used)


def test_a_folder_that_is_saved_to_again_has_no_stale_waybill(training, tmp_path, monkeypatch):
    """It is gone before a file is written anew, and stays away where the save fails."""
    accelerator, ledger, _, train = training
    accelerator.project_configuration.automatic_checkpoint_naming = False
    train(1)
    folder = accelerator.save_state(str(tmp_path / "last"))
    train(1)
    while not own_path(folder).exists():  # it is put in place by a call like this one, once it is hashed
        ledger.mark()
    assert read_waybill(folder).moment.step == 1
    monkeypatch.setattr(torch, "save", lambda *given: (_ for _ in ()).throw(OSError("disk full")))

    with pytest.raises(OSError, match="disk full"):
        accelerator.save_state(str(tmp_path / "last"))

    assert not own_path(folder).exists()


def test_a_checkpoint_that_learned_from_what_must_be_forgotten_is_refused(training, tmp_path):
    """Where Accelerate loads the state, too: the run's log knows which steps used it."""
    accelerator, ledger, loader, train = training
    used = train(2)
    folder = accelerator.save_state()
    ledger.close()
    open_run(tmp_path / "run").forget(samples=[f"points:{used[0]}"])

    accelerator.load_state(str(folder))
    loader.tracker = Ledger(tmp_path / "run")

    with pytest.raises(ResumeError, match="the loaded state, step 2 of attempt 0, is tainted"):
        next(iter(loader))


def test_a_save_before_the_first_batch_is_as_ever(training, tmp_path):
    """Nothing was learned, nothing is said."""
    accelerator, ledger, *_ = training

    folder = accelerator.save_state(str(tmp_path))
    ledger.close()  # what waits for its turn is put in place

    assert not own_path(folder).exists()
