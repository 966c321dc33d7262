"""What a Lightning Trainer hands to a model from a plain Loader."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from lading.loader.torch.loader import Loader
from lading.source.columns import Columns

DATA = Columns(x=np.arange(21, dtype=np.float32).reshape(21, 1))


class Model(L.LightningModule):
    """Notes the samples of every stage."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: dict[str, list[int]] = {}

    def note(self, stage: str, batch: dict) -> torch.Tensor:
        """Remember the samples that count."""
        real = ~batch["is_padding"] if "is_padding" in batch else torch.ones_like(batch["idx"], dtype=torch.bool)
        self.seen.setdefault(stage, []).extend(batch["idx"][real].tolist())
        return self.layer(batch["x"]).mean()

    def training_step(self, batch: dict, number: int) -> torch.Tensor:
        return self.note(f"fit-{self.current_epoch}", batch)

    def validation_step(self, batch: dict, number: int) -> None:
        self.note("validate" if self.trainer.state.fn == "validate" else "fit-val", batch)

    def test_step(self, batch: dict, number: int) -> None:
        self.note("test", batch)

    def predict_step(self, batch: dict, number: int) -> torch.Tensor:
        self.note("predict", batch)
        return batch["idx"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def trainer(devices: int, folder: Path, **options) -> L.Trainer:
    """Return a quiet CPU trainer."""
    strategy = "ddp" if devices > 1 else "auto"
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(
        accelerator="cpu", devices=devices, strategy=strategy, default_root_dir=folder, **{**quiet, **options}
    )


def main(folder: Path, devices: int) -> None:
    """Run every stage on one model, then a resume in the middle of an epoch."""
    model = Model()
    fit = trainer(devices, folder, max_epochs=2, enable_checkpointing=False)
    loader = Loader(DATA, 3)
    fit.fit(model, loader, Loader(DATA, 3, shuffle=False))
    sampler = type(fit.train_dataloader.sampler).__name__
    for stage in ("validate", "test", "predict"):
        getattr(trainer(devices, folder, enable_checkpointing=False), stage)(model, Loader(DATA, 3, shuffle=False))
    extra: dict = {"sampler": sampler}
    if devices == 1:
        overfit = Model()
        trainer(1, folder, max_epochs=2, overfit_batches=2, enable_checkpointing=False).fit(overfit, Loader(DATA, 3))
        extra["overfit"] = overfit.seen["fit-0"] + overfit.seen["fit-1"]
    extra |= resumed(folder, devices)
    (folder / f"seen-{fit.global_rank}.json").write_text(json.dumps({**model.seen, **extra}))


def resumed(folder: Path, devices: int) -> dict[str, list[int]]:
    """Stop after two batches of epoch 0, continue from the checkpoint; compare with a straight run."""
    straight = Model()
    trainer(devices, folder, max_epochs=1, enable_checkpointing=False).fit(straight, Loader(DATA, 3, seed=4))
    first = Model()
    saves = ModelCheckpoint(folder, filename="mid", every_n_train_steps=2, save_top_k=1)
    trainer(devices, folder, max_steps=2, callbacks=[saves]).fit(first, Loader(DATA, 3, seed=4))
    second = Model()
    trainer(devices, folder, max_epochs=1, enable_checkpointing=False).fit(
        second, Loader(DATA, 3, seed=4), ckpt_path=folder / "mid.ckpt"
    )
    return {"straight": straight.seen["fit-0"], "resumed": first.seen["fit-0"] + second.seen["fit-0"]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    main(Path(sys.argv[1]), int(sys.argv[2]))
