"""A tracked loader under real Lightning: the same batches, the right names, exact resume."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from lading.observe.tracking import track

lightning = pytest.importorskip("lightning")
ModelCheckpoint = pytest.importorskip("lightning.pytorch.callbacks").ModelCheckpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*GPU available:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:DeprecationWarning"),
]


class Noting(lightning.LightningModule):
    """Notes every batch it is given, and the bill that came with it."""

    def __init__(self, loader):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.loader = loader
        self.shown, self.named = [], []

    def training_step(self, batch, batch_idx):
        self.shown.append(batch[0].tolist())
        if hasattr(self.loader, "last_bill"):
            self.named.append((self.loader.last_bill.step, self.loader.last_bill.idx.tolist()))
        return self.layer(batch[0][:, None].float()).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader():
    """Return an ordinary shuffling loader."""
    return DataLoader(TensorDataset(torch.arange(20)), 4, shuffle=True)


def fit(model, folder, checkpoint=None, **arguments):
    """Train a module on CPU."""
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        log_every_n_steps=1,
        **arguments,
    )
    trainer.fit(model, model.loader, ckpt_path=checkpoint, weights_only=True if checkpoint else None)


def test_fit_sees_the_same_batches_with_their_names(tmp_path):
    """Two epochs of Lightning with and without track, from the same seed."""
    torch.manual_seed(0)
    plain = Noting(loader())
    fit(plain, tmp_path, max_epochs=2, enable_checkpointing=False)

    torch.manual_seed(0)
    tracked = Noting(track(loader()))
    fit(tracked, tmp_path, max_epochs=2, enable_checkpointing=False)

    assert tracked.shown == plain.shown
    assert tracked.named == list(enumerate(tracked.shown))


def test_resume_in_the_middle_of_an_epoch_is_exact(tmp_path):
    """Lightning keeps the state of the loader in its checkpoint; a new process continues with the next batch."""
    torch.manual_seed(0)
    whole = Noting(track(loader()))
    fit(whole, tmp_path, max_epochs=2, callbacks=[ModelCheckpoint(tmp_path, "middle", every_n_train_steps=7)])

    torch.manual_seed(99)
    resumed = Noting(track(loader()))
    fit(
        resumed,
        tmp_path,
        tmp_path / "middle.ckpt",
        max_epochs=2,
        callbacks=[ModelCheckpoint(tmp_path, every_n_train_steps=7)],
    )

    assert resumed.shown == whole.shown[7:]
    assert resumed.named == whole.named[7:]
