"""Checkpoint files of a Lightning trainer have waybills beside them."""

from __future__ import annotations

import pytest
from lightning.pytorch.callbacks import ModelCheckpoint
from tests.train.lightning.test_ledger import Model, fit, numbers

from lading.loader.torch.loader import Loader
from lading.report import open_checkpoint
from lading.report.checkpoint.check import check
from lading.train.lightning import LedgerCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
]


def test_files_have_waybills_and_those_of_deleted_files_are_swept(tmp_path):
    """Every update a file, the two newest are kept; one is saved by hand after the fit."""
    saves = ModelCheckpoint(tmp_path / "ck", every_n_train_steps=1, save_top_k=2, monitor="step", mode="max")
    loader = Loader(numbers(20), batch_size=5, seed=1)

    trainer = fit(tmp_path, Model(), saves, LedgerCallback(tmp_path / "run"), loader=loader)
    trainer.save_checkpoint(tmp_path / "ck" / "final.ckpt")

    files = sorted(p.name for p in (tmp_path / "ck").glob("*.ckpt"))
    assert len(files) == 3
    assert sorted(p.name for p in (tmp_path / "ck").glob("*.waybill.json")) == [f"{f}.waybill.json" for f in files]
    for name in files:
        opened = open_checkpoint(tmp_path / "ck" / name)
        assert check(opened).holds
    final = open_checkpoint(tmp_path / "ck" / "final.ckpt")
    assert (final.waybill.moment.step, final.totals().dicts()[0]["samples"]) == (12, 60)
