"""Loaders that Lightning makes anew, by their signatures, keep every option."""

from __future__ import annotations

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter

from lading import BatchTracker, Loader
from lading.order import Plan

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*sampler has shuffling enabled"),
    pytest.mark.filterwarnings("ignore:You requested to overfit but enabled"),
]
OPTIONS = {"weights": {"a": 3, "b": 1}, "seed": 11, "chunk_batches": 4, "names": {"idx": "row", "dataset_idx": "of"}}


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Samples that say who they are."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor([float(index)])}


class Model(LightningModule):
    """Note what comes."""

    def __init__(self, loader: Loader | None = None) -> None:
        super().__init__()
        self.layer, self.loader = torch.nn.Linear(1, 1), loader
        self.seen: list[list[tuple[int, int]]] = []

    def training_step(self, batch, batch_idx):
        """Note the samples, return a loss."""
        self.seen.append(rows(batch))
        return self.layer(batch["x"]).mean()

    def predict_step(self, batch, batch_idx):
        """Return the samples."""
        return rows(batch)

    def configure_optimizers(self):
        """Return any optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


class WithHooks(Model):
    """Make the loader in a hook, where Lightning watches how it is made."""

    def predict_dataloader(self):
        """Return the loader."""
        return made(OPTIONS)

    def train_dataloader(self):
        """Return the loader."""
        return made(OPTIONS)


def rows(batch) -> list[tuple[int, int]]:
    """Return (dataset, index) of every row."""
    return list(zip(batch["of"].tolist(), batch["row"].tolist(), strict=True))


def made(options, **more) -> Loader:
    """Return a loader of two datasets."""
    return Loader({"a": Rows(30), "b": Rows(20)}, batch_size=5, **options, **more)


def planned(plan: Plan, steps: int) -> list[list[tuple[int, int]]]:
    """Return the samples of the first steps of a plan."""
    return [[tuple(sample) for sample in plan.bill(step).samples] for step in range(steps)]


def trainer(folder, **more) -> Trainer:
    """Return a quiet trainer."""
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    return Trainer(default_root_dir=folder, accelerator="cpu", max_epochs=1, **quiet, **more)


@pytest.mark.parametrize("hooks", [False, True])
def test_predict_keeps_weights_seed_and_chunks(tmp_path, hooks):
    """The loader that Lightning makes to predict yields the first chunk of the very plan."""
    given = [] if hooks else [made(OPTIONS)]

    predicted = trainer(tmp_path).predict((WithHooks if hooks else Model)(), *given)

    assert predicted == planned(made(OPTIONS).plan, 4)
    assert predicted != planned(made({**OPTIONS, "seed": 0}).plan, 4)
    assert predicted != planned(made({**OPTIONS, "weights": None}).plan, 4)


@pytest.mark.parametrize("hooks", [False, True])
def test_overfit_batches_keeps_weights_seed_and_chunks(tmp_path, hooks):
    """It is the same mixture without shuffling, as Lightning asks for; two batches of it."""
    given, model = [] if hooks else [made(OPTIONS)], (WithHooks if hooks else Model)()

    trainer(tmp_path, overfit_batches=2).fit(model, *given)

    assert model.seen == planned(made(OPTIONS, shuffle=False).plan, 2)
    assert model.seen != planned(made({**OPTIONS, "weights": None}, shuffle=False).plan, 2)


def test_the_tracker_goes_with_a_loader_that_is_trained_on_and_not_with_one_that_predicts(tmp_path):
    """The books of an overfitted run were dropped in silence; a prediction is no training."""
    trained, predicted = BatchTracker(), BatchTracker()

    trainer(tmp_path, overfit_batches=2).fit(Model(), made(OPTIONS, tracker=trained))
    trainer(tmp_path).predict(Model(), made(OPTIONS, tracker=predicted))

    assert sum(trained.n_samples_per_dataset.values()) == 10
    assert predicted.n_samples_per_dataset == {}


class Writer(BasePredictionWriter):
    """Keep what Lightning says the batches were."""

    def write_on_batch_end(self, trainer, model, prediction, batch_indices, batch, batch_idx, dataloader_idx):
        """Note the samples of a batch."""
        self.batches = [*getattr(self, "batches", []), batch_indices]

    def write_on_epoch_end(self, trainer, model, predictions, batch_indices):
        """Note the samples of all batches."""
        self.epoch = batch_indices


def test_a_prediction_writer_is_told_which_samples_a_batch_holds(tmp_path):
    """By number in all the data, one dataset after the other; it failed for want of the list that Lightning forgets."""
    writer, options = Writer(write_interval="batch_and_epoch"), {**OPTIONS, "chunk_batches": None}

    trainer(tmp_path, callbacks=[writer]).predict(Model(), made(options))

    numbers = [[30 * of + row for of, row in step] for step in planned(made(options).plan, 10)]
    assert writer.batches == numbers
    assert writer.epoch == [numbers]
