"""A ledger fed by a real Lightning trainer."""

from __future__ import annotations

import copy
import csv
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset

from lading.errors import LadingError, LedgerError, SourceError
from lading.kits.chunked.lightning import ChunkedSequenceDataset, SequenceDataset
from lading.ledger import BatchTracker, Ledger
from lading.loader.torch.loader import Loader
from lading.report import open_run
from lading.report.summary import summarise
from lading.train.fates import NO_GRADIENTS
from lading.train.lightning import LedgerCallback, plain
from lading.train.loggers import logged

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You .*validation_step"),
]


class Model(LightningModule):
    """An ordinary module; dies before a batch if asked to."""

    def __init__(self, dies_at: int = -1) -> None:
        super().__init__()
        self.layer, self.dies_at = torch.nn.Linear(1, 1), dies_at

    def training_step(self, batch, batch_idx):
        """Return a loss."""
        if self.trainer.global_step == self.dies_at:
            raise InterruptedError
        return {"loss": self.layer(batch[0][:, None]).square().mean()}

    def configure_optimizers(self):
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def numbers(size: int) -> TensorDataset:
    """Return pairs of numbers."""
    return TensorDataset(torch.arange(size).float(), torch.arange(size).float())


def chunks() -> ChunkedSequenceDataset:
    """Return 50 batches in chunks of 20."""
    return ChunkedSequenceDataset(numbers(100), train_chunk_size=20, loader={"batch_size": 2})


def fit(tmp_path, model, *callbacks: Callback, datamodule=None, loader=None, ckpt_path=None, **options) -> Trainer:
    """Train three epochs, quietly."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    saves = any(isinstance(c, ModelCheckpoint) for c in callbacks)
    trainer = Trainer(
        max_epochs=3,
        default_root_dir=tmp_path,
        callbacks=list(callbacks),
        enable_checkpointing=saves,
        **quiet,
        **options,
    )
    trainer.fit(model, loader, datamodule=datamodule, ckpt_path=ckpt_path)
    return trainer


def test_every_step_is_delivered_and_applied(tmp_path):
    """Three chunks are one pass: 50 steps applied, and the record is what the plan says."""
    fit(tmp_path, Model(), LedgerCallback(tmp_path / "run"), datamodule=chunks())

    run = open_run(tmp_path / "run")
    assert run.verify().holds
    history = run.history.arrow.to_pylist()
    assert [row["step"] for row in history] == list(range(50))
    assert [row["update"] for row in history] == list(range(50))
    assert all(row["loss"] > 0 for row in history)


def test_accumulated_batches_are_committed_with_their_update(tmp_path):
    """Two batches an update; a chunk's odd last batch is an update of its own."""
    module = ChunkedSequenceDataset(numbers(100), train_chunk_size=15, loader={"batch_size": 2})

    fit(tmp_path, Model(), LedgerCallback(tmp_path / "run"), datamodule=module, accumulate_grad_batches=2)

    updates = [row["update"] for row in open_run(tmp_path / "run").history.arrow.to_pylist()]
    assert updates[:16] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8]
    assert len(updates) == 45


def test_killed_and_resumed_leaves_one_history(tmp_path):
    """Dead at step 33, saved at step 28: steps 28 to 32 are rolled back, and history has each step once."""
    record = tmp_path / "run"
    saves = ModelCheckpoint(tmp_path / "saves", every_n_train_steps=14, save_last=True)
    with pytest.raises(InterruptedError):
        fit(tmp_path, Model(dies_at=33), LedgerCallback(record), saves, datamodule=chunks())

    later = ModelCheckpoint(tmp_path / "later", every_n_train_steps=14, save_last=True)
    with pytest.warns(UserWarning, match="The dirpath has changed"):
        fit(tmp_path, Model(), LedgerCallback(record), later, datamodule=chunks(), ckpt_path=saves.last_model_path)

    run = open_run(record)
    assert run.verify().holds
    assert [row["step"] for row in run.history.arrow.to_pylist()] == list(range(50))
    assert [row["attempt"] for row in run.history.arrow.to_pylist()] == [0] * 28 + [1] * 22


DAMAGES = {
    "train": lambda state: state.pop("train"),
    "val": lambda state: state.update(val=7),
    "step": lambda state: state["train"].update(step="\x1b[2J"),
    "position": lambda state: state["train"].update(position=-1),
    "launch": lambda state: state["train"].update(launch="zz"),
    "events": lambda state: state["train"].update(events="[{"),
    "version": lambda state: state["train"].pop("version"),
}


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_a_checkpoint_whose_state_is_damaged_is_refused_by_name(tmp_path):
    """Lightning reads the file; what it hands to us is checked before anything is trained on."""
    saves = ModelCheckpoint(tmp_path / "saves", every_n_train_steps=14, save_last=True)
    fit(tmp_path, Model(), LedgerCallback(tmp_path / "run"), saves, datamodule=chunks())
    whole = torch.load(saves.last_model_path, weights_only=False)
    name = next(key for key, state in whole["callbacks"].items() if "train" in state)

    for number, (what, damage) in enumerate(DAMAGES.items()):
        broken = copy.deepcopy(whole)
        damage(broken["callbacks"][name])
        torch.save(broken, tmp_path / "broken.ckpt")
        with pytest.raises(LadingError, match=what) as found:
            fit(
                tmp_path,
                Model(),
                LedgerCallback(tmp_path / "run"),
                datamodule=chunks(),
                ckpt_path=tmp_path / "broken.ckpt",
            )
        assert "\x1b" not in str(found.value), number


@pytest.mark.parametrize("wrap", [lambda loader: loader, plain])
def test_loaders_without_chunks_are_recorded_too(tmp_path, wrap):
    """A Loader, bare or plain, with a ledger that was opened before and a tracker of its own."""
    loader = Loader(numbers(20), 4, tracker=BatchTracker())
    ledger = Ledger(tmp_path / "run", loader.plan)

    fit(tmp_path, Model(), LedgerCallback(ledger), loader=wrap(loader))

    ledger.close()
    assert len(open_run(tmp_path / "run").history.arrow.to_pylist()) == 15
    assert loader.tracker[0].n_samples_per_dataset == {0: 60}


def test_accounted_data_modules_are_recorded_without_chunks(tmp_path):
    """``accounted=True`` gives the trainer a loader that can say what it delivers."""
    module = SequenceDataset(numbers(20), accounted=True, loader={"batch_size": 4})

    fit(tmp_path, Model(), LedgerCallback(tmp_path / "run"), datamodule=module)

    assert open_run(tmp_path / "run").verify().holds


def test_a_foreign_loader_is_refused_with_a_way_out(tmp_path):
    """A plain DataLoader cannot say what it delivers."""
    with pytest.raises(LedgerError, match=r"needs one Lading loader to train on, found DataLoader.*accounted=True"):
        fit(tmp_path, Model(), LedgerCallback(tmp_path / "run"), loader=DataLoader(numbers(8)))


def test_the_trainers_own_loggers_hear_what_the_run_is_fed(tmp_path):
    """Every few updates, with real loggers of Lightning's: CSV, and TensorBoard read back by its own reader."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    loggers = [CSVLogger(tmp_path / "csv"), TensorBoardLogger(tmp_path / "tensorboard")]
    loader = Loader({"code": numbers(60), "prose": numbers(40)}, batch_size=5, weights={"code": 0.8, "prose": 0.2})
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=loggers,
        log_every_n_steps=5,
        callbacks=[LedgerCallback(tmp_path / "run", log_every=5)],
        **quiet,
    )

    trainer.fit(Model(), loader)

    rows = list(csv.DictReader((Path(loggers[0].log_dir) / "metrics.csv").read_text().splitlines()))
    assert [int(row["step"]) for row in rows if row["lading/shares/code"]] == [4, 9, 14, 19]
    assert float(rows[-1]["lading/passes/code"]) == pytest.approx(80 / 60, abs=0.05)
    assert loader.plan.fingerprint in (Path(loggers[0].log_dir) / "hparams.yaml").read_text()
    events = accumulator.EventAccumulator(str(loggers[1].log_dir))
    events.Reload()
    assert [event.step for event in events.Scalars("lading/shares/code")] == [4, 9, 14, 19]
    assert open_run(tmp_path / "run").verify().holds


def test_a_logged_ledger_is_a_ledger_to_the_callback(tmp_path):
    """Sinks of one's own, in Lightning; what is opened outside is closed outside."""
    heard = []

    class Sink:
        def scalars(self, values, step):
            heard.append(step)

        def facts(self, facts):
            heard.append(sorted(facts))

        def close(self, run):
            heard.append(run)

    ledger = logged(Ledger(tmp_path / "run"), Sink(), every=10)

    fit(tmp_path, Model(), LedgerCallback(ledger), loader=Loader(numbers(50), batch_size=5))
    ledger.close()
    ledger.close()

    assert [step for step in heard if isinstance(step, int)] == [9, 19, 29]
    assert heard[-1] == tmp_path / "run"
    assert heard.count(tmp_path / "run") == 1
    assert open_run(tmp_path / "run").verify().holds


class Choosy(Model):
    """Leaves some batches out, as people do with broken ones; with accumulation, too."""

    def __init__(self, *left_out: int) -> None:
        super().__init__()
        self.left_out = left_out

    def training_step(self, batch, batch_idx):
        """Return a loss, or None."""
        return None if batch_idx in self.left_out else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:.*`training_step` returned `None`")
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_training_step_that_returns_none_is_a_skipped_batch(tmp_path, accumulated):
    """Lightning counts an update; no parameter changed by that batch."""
    options = {"accumulate_grad_batches": accumulated, "limit_train_batches": 8}

    fit(tmp_path, Choosy(2, 4, 5), LedgerCallback(tmp_path / "run"), loader=Loader(numbers(32), 4), **options)

    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    rows = opened.batches.dicts()[:8]
    assert [row["step"] for row in rows if row["fate"] == "skipped"] == [2, 4, 5]
    assert {row["reason"] for row in rows} == {None, NO_GRADIENTS}


class ByHand(Model):
    """Optimizes by hand, every second batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        """Add up gradients, and use them after two batches."""
        loss = self.layer(batch[0][:, None]).square().mean()
        self.manual_backward(loss)
        if batch_idx % 2:
            self.optimizers().step()
            self.optimizers().zero_grad()


def test_optimization_by_hand_is_seen_at_the_optimizer(tmp_path):
    """Two batches an update, though training_step returns nothing at all."""
    fit(tmp_path, ByHand(), LedgerCallback(tmp_path / "run"), loader=Loader(numbers(32), 4))

    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    assert [row["update"] for row in opened.history.dicts()[:8]] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_fit_that_an_exception_ends_has_failed(tmp_path):
    """Not ended: the attempt says how it went."""
    with pytest.raises(InterruptedError):
        fit(tmp_path, Model(dies_at=3), LedgerCallback(tmp_path / "run"), loader=Loader(numbers(32), 4))

    found = summarise(open_run(tmp_path / "run")).attempts

    assert [(attempt["state"], attempt["kept"]) for attempt in found] == [("failed", 3)]


def test_another_trainer_over_the_same_loader_goes_on(tmp_path):
    """A second fit in the process, with a trainer and a callback of its own, which counts its epochs from 0 again."""
    model, loader = Model(), Loader(numbers(32), 4)

    for _ in range(2):
        fit(tmp_path, model, LedgerCallback(tmp_path / "run"), loader=loader)

    opened = open_run(tmp_path / "run")
    assert opened.verify().holds
    assert opened.history["step"] == [*range(32), *range(8, 24)]  # epochs 0 to 3, then the trainer's own 1 and 2
    assert [launch.kind for launch in opened.evidence.launches.values()] == ["root", "resume", "replay"]
    assert loader.state_dict()["attempt"] == 2


def test_a_batch_that_is_not_its_bill_ends_the_training(tmp_path):
    """Rows that a collate function leaves out: refused where the batch is made, and no book says it was used."""

    def without_some(samples):
        kept = [x for x, _ in samples if x != 5]
        return [torch.stack(kept)]

    loader = Loader(numbers(20), batch_size=4, shuffle=False, collate_fn=without_some)
    with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows"):
        fit(tmp_path, Model(), LedgerCallback(tmp_path / "run"), loader=loader)

    assert open_run(tmp_path / "run").history["step"] == [0]
