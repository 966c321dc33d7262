"""Chunked training with Lightning, a ledger, a crash and an exact resume: python examples/lightning_training.py

The same as a configuration: lading train examples/tones.yaml
"""

from __future__ import annotations

import tempfile

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import TensorDataset

from lading.kits.chunked.lightning import ChunkedSequenceDataset
from lading.report import open_run
from lading.train.lightning import LedgerCallback


class AudioModel(LightningModule):
    """An ordinary module around ``NextSample`` of examples/audio.py."""

    def __init__(self, levels: int, lr: float = 1e-2) -> None:
        super().__init__()
        from audio import NextSample  # beside this file

        self.model, self.lr = NextSample(levels), lr

    def training_step(self, batch, batch_idx):
        x, y, _ = batch
        return self.model.loss(x, y)

    def validation_step(self, batch, batch_idx):
        x, y, _ = batch
        self.log("val_loss", self.model.loss(x, y), batch_size=len(x))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Line(LightningModule):
    """Fits y = 3 x."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Linear(1, 1)

    def training_step(self, batch, batch_idx):
        x, y, _ = batch
        return (self.slope(x[:, None])[:, 0] - y).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(folder: str, epochs: int, resume: bool = False) -> None:
    """Train some chunks; every chunk is an epoch of the trainer."""
    x = torch.linspace(-1, 1, 5000)
    data = ChunkedSequenceDataset(TensorDataset(x, 3 * x), train_chunk_size=40, loader={"batch_size": 32})
    saves = ModelCheckpoint(f"{folder}/checkpoints", save_last=True, every_n_train_steps=25)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(max_epochs=epochs, callbacks=[LedgerCallback(folder), saves], **quiet)
    trainer.fit(Line(), datamodule=data, ckpt_path=f"{folder}/checkpoints/last.ckpt" if resume else None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        fit(folder, epochs=2)  # 80 steps; the last checkpoint is of step 75
        fit(folder, epochs=6, resume=True)
        run = open_run(folder)
        print(run.verify())
        print(run.where("data", 17))
