"""Chunks under ``ddp``: two processes killed in the middle of a chunk, resumed on one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from lading.report import open_run

# Run as a script by the first attempt (Lightning starts the second process itself), imported by the second.
SCRIPT = """
import sys, time
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import TensorDataset
from lading import ChunkedDataLoader
from lading.kits.chunked.lightning import ChunkedSequenceDataset
from lading.train.lightning import LedgerCallback


class Model(LightningModule):
    def __init__(self, pause):
        super().__init__()
        self.layer, self.pause, self.validations = torch.nn.Linear(1, 1), pause, 0

    def training_step(self, batch, batch_idx):
        time.sleep(self.pause)
        return self.layer(batch[1][:, None]).square().mean()

    def on_validation_epoch_end(self):
        self.validations += not self.trainer.sanity_checking

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def fit(run, epochs, ckpt_path=None, pause=0.0, **options):
    data = TensorDataset(torch.arange(445), torch.linspace(0, 1, 445))
    module = ChunkedSequenceDataset(
        data, TensorDataset(*data[:30]), train_chunk_size=30, val_chunk_size=2, loader={"global_batch_size": 4}
    )
    saves = ModelCheckpoint(run + "/saves", every_n_train_steps=7, save_last=True)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
    model = Model(pause)
    trainer = Trainer(max_epochs=epochs, callbacks=[LedgerCallback(run), saves], **quiet, **options)
    trainer.fit(model, datamodule=module, ckpt_path=ckpt_path)
    return model


def fit_directly(run):
    loader = ChunkedDataLoader(TensorDataset(torch.arange(45), torch.linspace(0, 1, 45)), 2, chunk_size=4)
    quiet = dict(logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    ddp = dict(max_epochs=3, accelerator="cpu", strategy="ddp", devices=2)
    Trainer(callbacks=[LedgerCallback(run)], **ddp, **quiet).fit(Model(0.0), loader)


if __name__ == "__main__":
    fit_directly(sys.argv[1] + "-directly")
    fit(sys.argv[1], 1000, pause=0.005, strategy="ddp", devices=2)
"""


@pytest.mark.launch
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_two_processes_killed_mid_chunk_and_resumed_on_one(tmp_path, monkeypatch):
    """Every step once, each the plan's; the digest is that of a run that one process made without a break."""
    (tmp_path / "lading_ddp_script.py").write_text(SCRIPT)
    run = str(tmp_path / "run")
    with (tmp_path / "stderr").open("w") as errors:
        command = [sys.executable, "lading_ddp_script.py", run]
        process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stdout=errors, stderr=errors)
    deadline = time.monotonic() + 3000
    while not list((tmp_path / "run/saves").glob("*-step=[4-9]?.ckpt")) and time.monotonic() < deadline:
        assert process.poll() is None, (tmp_path / "stderr").read_text()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # both ranks at once, as when a node dies
    process.wait()
    monkeypatch.syspath_prepend(tmp_path)
    import lading_ddp_script as script

    model = script.fit(run, 8, ckpt_path=run + "/saves/last.ckpt")
    script.fit(str(tmp_path / "alone"), 8)

    direct = open_run(run + "-directly")
    assert direct.verify().holds
    assert direct.history["step"] == list(range(12)) and direct.history["ranks"] == [2] * 12
    used = [row["index"] for row in direct.sql("SELECT * FROM samples ORDER BY step, slot")]
    assert sorted(used[:45]) == list(range(45)) and len(used) == 45
    resumed, alone = open_run(run), open_run(tmp_path / "alone")
    history = resumed.history.arrow.to_pylist()
    assert resumed.verify().holds and alone.verify().holds
    assert [row["step"] for row in history] == list(range(2 * 112))
    assert resumed.verify().digest == alone.verify().digest
    first = next(row["step"] for row in history if row["attempt"] == 1)
    assert first % 7 == 0 and first > 30
    assert model.validations == 8 - sum(end < first for end in (30, 60, 90, 112, 142, 172))
