"""Chunks under a real Lightning trainer: every sample, every validation, every resume."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint, RichProgressBar, TQDMProgressBar
from torch.utils.data import DataLoader, TensorDataset

from lading import BatchTracker, open_run
from lading.errors import ConfigError, LoaderError
from lading.kits import chunked
from lading.kits.chunked import lightning as in_lightning
from lading.kits.chunked.lightning import ChunkedSequenceDataset, ChunkedTraining
from lading.loader.torch.chunked import ChunkedDataLoader
from lading.loader.torch.loader import Loader
from lading.train.lightning import LedgerCallback, plain

# Lightning's own: its use of torch's pytrees, and a folder of checkpoints that changed since
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed"),
]

NUM_SAMPLES, BATCH, CHUNK = 223, 2, 30  # 112 batches, the last one short: chunks of 30, 30, 30, 22


def pairs(size: int) -> TensorDataset:
    """Return pairs (i, i as a feature)."""
    return TensorDataset(torch.arange(size), torch.arange(size).float())


class Model(LightningModule):
    """An ordinary module that notes what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []
        self.validated: list[list[int]] = []

    def training_step(self, batch, batch_idx):
        """Note the samples, return a loss."""
        x, y, *_ = batch
        self.seen.append(x.tolist())
        return self.layer(y[:, None] / NUM_SAMPLES).square().mean()

    def on_validation_start(self):
        """Begin a new list."""
        if not self.trainer.sanity_checking:
            self.validated.append([])

    def validation_step(self, batch, batch_idx):
        """Note the samples."""
        x, y, *_ = batch
        if not self.trainer.sanity_checking:
            self.validated[-1] += x.tolist()
        self.log("val_loss", self.layer(y[:, None]).square().mean())

    def test_step(self, batch, batch_idx):
        """Do nothing."""

    def predict_step(self, batch, batch_idx):
        """Return the samples."""
        return batch[0].tolist()

    def configure_optimizers(self):
        """Return plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def data(**options) -> ChunkedSequenceDataset:
    """Return the data module of these tests."""
    options = {"train_chunk_size": CHUNK, "val_chunk_size": 3, "loader": {"batch_size": BATCH}, **options}
    return ChunkedSequenceDataset(pairs(NUM_SAMPLES), pairs(13), pairs(5), **options)


def trainer(tmp_path, **options) -> Trainer:
    """Return an ordinary trainer, quiet."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    options = {"max_epochs": 4, "enable_checkpointing": False, **options}
    return Trainer(default_root_dir=tmp_path, **quiet, **options)


def flat(batches) -> list[int]:
    """Return the numbers of all batches."""
    return [n for batch in batches for n in batch]


def test_chunks_cover_the_whole_data_over_four_epochs(tmp_path):
    """112 batches in chunks of 30: 30, 30, 30, 22, each sample once, validation after each chunk, the short one too."""
    model = Model()

    trainer(tmp_path).fit(model, datamodule=data())

    assert len(model.seen) == 112
    assert sorted(flat(model.seen)) == list(range(NUM_SAMPLES))
    assert model.validated == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12], [0, 1, 2, 3, 4, 5]]


@pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers")
@pytest.mark.filterwarnings("ignore:The 'val_dataloader' does not have many workers")
def test_a_limit_alone_sees_the_head_only(tmp_path):
    """What the document complains of: a limit of 30 sees 30 batches an epoch, and no chunks are made."""
    model = Model()
    module = data(train_chunk_size=None, val_chunk_size=None, loader={"batch_size": BATCH, "shuffle": False})

    trainer(tmp_path, limit_train_batches=30, limit_val_batches=1).fit(model, datamodule=module)

    assert len(model.seen) == 120 and set(flat(model.seen)) == set(range(60))
    assert model.validated == [[0, 1]] * 4


def test_limits_are_ignored_for_real_with_one_warning(tmp_path):
    """The trainer's own limits are set back; the warning names the numbers."""
    model, run = Model(), trainer(tmp_path, limit_train_batches=5, limit_val_batches=1, max_epochs=1)

    with pytest.warns(UserWarning, match=r"limit_train_batches=5, limit_val_batches=1 ignored: chunk sizes") as caught:
        run.fit(model, datamodule=data())

    assert len([w for w in caught if "ignored: chunk sizes" in str(w.message)]) == 1
    assert (run.limit_train_batches, run.limit_val_batches) == (1.0, 1.0)
    assert len(model.seen) == 30 and len(model.validated[0]) == 6


def test_the_sanity_check_uses_up_no_chunk(tmp_path):
    """Validation chunks of two batches are all the sanity check takes; they come again."""
    model, module = Model(), data(val_chunk_size=2)

    trainer(tmp_path, max_epochs=2, num_sanity_val_steps=2).fit(model, datamodule=module)

    assert model.validated == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (module.current_train_chunk, module.current_val_chunk) == (2, 2)


def test_inferred_sizes_take_the_whole_partition(tmp_path):
    """Only one size given: the other partition is one chunk each epoch."""
    model = Model()
    trainer(tmp_path, max_epochs=2).fit(model, datamodule=data(val_chunk_size=None))
    assert len(model.seen) == 60 and model.validated == [list(range(13))] * 2

    model = Model()
    trainer(tmp_path, max_epochs=1).fit(model, datamodule=data(train_chunk_size=None))
    assert len(model.seen) == 112 and model.validated == [[0, 1, 2, 3, 4, 5]]


def test_validation_inside_a_chunk_follows_its_length(tmp_path):
    """Half way through each chunk and at its end, for the short one too."""
    model = Model()

    trainer(tmp_path, val_check_interval=0.5).fit(model, datamodule=data(val_chunk_size=1))

    assert len(model.validated) == 8


def test_a_second_pass_is_shuffled_differently(tmp_path):
    """Eight epochs are two passes: each sample twice, in another order."""
    model = Model()

    trainer(tmp_path, max_epochs=8).fit(model, datamodule=data())

    first, second = flat(model.seen[:112]), flat(model.seen[112:])
    assert sorted(first) == sorted(second) == list(range(NUM_SAMPLES)) and first != second


def test_fast_dev_run_and_overfit_batches_are_respected(tmp_path):
    """Debugging switches win over chunks; overfitting sees the same batches again and again."""
    model = Model()
    trainer(tmp_path, fast_dev_run=True).fit(model, datamodule=data())
    assert len(model.seen) == 1

    model = Model()
    trainer(tmp_path, overfit_batches=2, max_epochs=3).fit(model, datamodule=data())
    assert len(model.seen) == 6 and model.seen[:2] == model.seen[2:4] == model.seen[4:]


@pytest.mark.parametrize("reload", [0, 1])
def test_reloading_loaders_every_epoch_goes_on(tmp_path, reload):
    """Lightning may ask the data module for its loaders every epoch."""
    model = Model()

    trainer(tmp_path, reload_dataloaders_every_n_epochs=reload).fit(model, datamodule=data())

    assert sorted(flat(model.seen)) == list(range(NUM_SAMPLES)) and len(model.validated) == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: ChunkedDataLoader(pairs(NUM_SAMPLES), BATCH, CHUNK, **o),
        lambda **o: plain(ChunkedDataLoader(pairs(NUM_SAMPLES), BATCH, CHUNK, **o)),
        lambda **o: plain(Loader(pairs(NUM_SAMPLES), BATCH, chunk_batches=CHUNK, **o)),
        lambda **o: Loader(pairs(NUM_SAMPLES), BATCH, chunk_batches=CHUNK, **o),
    ],
)
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_loaders_of_ones_own_need_only_the_callback(tmp_path, make):
    """Chunked loaders handed to ``fit`` itself, limits overruled."""
    model = Model()
    run = trainer(tmp_path, callbacks=[ChunkedTraining()], limit_train_batches=7)

    with pytest.warns(UserWarning, match=r"limit_train_batches=7 ignored: chunk sizes"):
        run.fit(model, make(), DataLoader(pairs(4)))

    assert sorted(flat(model.seen)) == list(range(NUM_SAMPLES)) and len(model.validated) == 4


def test_plain_loaders_are_left_alone_by_predict(tmp_path):
    """Lightning would rebuild a DataLoader for ``predict``; a plain one keeps its order and its bills."""
    loader = plain(ChunkedDataLoader(pairs(NUM_SAMPLES), BATCH, CHUNK, shuffle=False))
    run = trainer(tmp_path)

    run.predict(Model(), loader)
    run.test(Model(), plain(loader.loader), verbose=False)

    assert loader.last_bill is not None and loader.last_bill.step == 59
    assert loader.bill_at(0).step == 30


WORKERS = pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")


@WORKERS
@pytest.mark.filterwarnings("ignore:Your `predict_dataloader`'s sampler has shuffling enabled")
def test_a_chunked_loader_given_to_predict_is_refused_by_name(tmp_path):
    """Lightning makes a new loader of its parts; ``plain`` is left alone, and without chunks torch's loader works."""
    run, keep = trainer(tmp_path), [list(range(3 * k, 3 * k + 3)) for k in range(2)]

    with pytest.raises(LoaderError, match=r"making a new loader of the parts of a ChunkedDataLoader.*plain\(loader\)"):
        run.predict(Model(), ChunkedDataLoader(pairs(20), 3, chunk_size=2, shuffle=False))

    assert run.predict(Model(), plain(ChunkedDataLoader(pairs(20), 3, chunk_size=2, shuffle=False))) == keep
    collate = {"collate_fn": lambda rows: [torch.tensor([number for number, _ in rows]), None]}
    assert run.predict(Model(), ChunkedDataLoader(pairs(6), 3, **collate)) == keep
    shuffled = run.predict(Model(), ChunkedDataLoader(pairs(6), 3, shuffle=True, **collate))
    assert sorted(itertools.chain(*shuffled)) == list(range(6))


@WORKERS
@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")
@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_a_chunked_loader_on_its_own_is_recorded_under_fit_and_overfit(tmp_path):
    """What training_step saw is what tracker and ledger hold, chunk by chunk; overfitting repeats the head of one."""
    tracker, model = BatchTracker(), Model()
    loader = ChunkedDataLoader(pairs(20), 3, chunk_size=2, tracker=tracker)
    trainer(tmp_path, callbacks=[LedgerCallback(tmp_path / "run")]).fit(model, loader)

    assert model.seen == [loader.plan.bill(step).idx.tolist() for step in range(7)]
    assert tracker.samples_idx_per_dataset == {0: [*itertools.chain(*model.seen)]}
    assert open_run(tmp_path / "run").verify().holds
    again, seen = Model(), BatchTracker()
    head = ChunkedDataLoader(pairs(20), 3, chunk_size=2, tracker=seen)
    trainer(tmp_path, overfit_batches=1, max_epochs=3).fit(again, head)
    assert again.seen == [head.plan.bill(0).idx.tolist()] * 3
    assert seen.samples_idx_per_dataset == {0: [*itertools.chain(*again.seen)]}


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_validate_test_and_predict_work_alone(tmp_path):
    """Outside of fit: validation takes the next chunk, test its own, predict one whole pass."""
    model, module, run = Model(), data(), trainer(tmp_path)

    run.validate(model, datamodule=module, verbose=False)
    run.validate(model, datamodule=module, verbose=False)
    run.test(model, datamodule=module, verbose=False)
    predicted = run.predict(model, datamodule=module)

    assert model.validated == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert len(predicted) == 3


@pytest.mark.parametrize("bar", [TQDMProgressBar, RichProgressBar])
def test_progress_is_shown_and_logged(tmp_path, capsys, bar):
    """The bar has the line with pass, chunk and share; the loggers have numbers."""
    model = Model()
    run = Trainer(
        max_epochs=4,
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[bar()],
    )

    run.fit(model, datamodule=data())

    shown = capsys.readouterr()
    assert "pass 0, chunk 3/4, 100 % of the data" in shown.out + shown.err
    assert {k: float(v) for k, v in run.callback_metrics.items() if k.startswith("data/")} == {
        "data/chunk": 3.0,
        "data/pass": 0.0,
        "data/share": 1.0,
    }


class Killed(Exception):
    """Stands for a dead process: nothing after it runs."""


class Kill(Callback):
    """Dies in a hook, after a number of training batches."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        """Die before the batch is used."""
        if trainer.global_step >= self.after:
            raise Killed


# How checkpoints are saved, and whether one taken after a chunk's last batch comes after the chunk's validation.
CHECKPOINTS = {
    "every 7 steps": ({"every_n_train_steps": 7}, False),
    "every 30 steps": ({"every_n_train_steps": 30}, False),
    "after validation": ({"save_on_train_epoch_end": False}, True),
    "at the end of the trainer's epoch": ({"save_on_train_epoch_end": True}, True),
}
BORDERS = [30, 60, 90, 112, 142, 172]


@pytest.mark.filterwarnings("ignore:.*was called without a model")
@pytest.mark.filterwarnings("ignore:.fit\\(ckpt_path=.last.\\) is set, but there is no last checkpoint")
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize(("chunked", "killed_at"), [(True, 40), (True, 60), (True, 111), (False, 40)])
def test_a_batch_that_died_in_training_comes_again(tmp_path, chunked, killed_at):
    """A checkpoint saved by the exception itself: the batch was yielded and not used, so it is trained on again."""
    sizes = {} if chunked else {"train_chunk_size": None, "val_chunk_size": None, "accounted": True}
    whole, died, resumed = Model(), Model(), Model()
    trainer(tmp_path, max_epochs=4).fit(whole, datamodule=data(**sizes))
    dying = OnExceptionCheckpoint(tmp_path, "died")
    with pytest.raises(Killed):
        trainer(tmp_path, max_epochs=4, enable_checkpointing=True, callbacks=[dying, Kill(killed_at)]).fit(
            died, datamodule=data(**sizes)
        )

    trainer(tmp_path, max_epochs=4).fit(resumed, datamodule=data(**sizes), ckpt_path=tmp_path / "died.ckpt")

    assert len(died.seen) == killed_at
    assert died.seen + resumed.seen == whole.seen


@pytest.mark.parametrize("every", [7, 30])
def test_runs_that_count_steps_resume_too(tmp_path, every):
    """``max_steps`` makes Lightning restart in other ways; the samples are the same."""
    whole, died, resumed = Model(), Model(), Model()
    options = {"max_steps": 150, "max_epochs": -1}
    first, later = (ModelCheckpoint(tmp_path / n, save_last=True, every_n_train_steps=every) for n in ("1", "2"))
    trainer(tmp_path, **options).fit(whole, datamodule=data())
    with pytest.raises(Killed):
        trainer(tmp_path, **options, enable_checkpointing=True, callbacks=[first, Kill(95)]).fit(
            died, datamodule=data()
        )

    trainer(tmp_path, **options, enable_checkpointing=True, callbacks=[later]).fit(
        resumed, datamodule=data(), ckpt_path=first.last_model_path
    )

    assert died.seen[: 95 // every * every] + resumed.seen == whole.seen


@pytest.mark.parametrize(
    "changed",
    [
        {"train_chunk_size": 17},
        {"loader": {"batch_size": 3, "allow_rebatch": True}},
        {"loader": {"batch_size": 5, "allow_rebatch": True}, "train_chunk_size": 50},
    ],
)
@pytest.mark.parametrize("every", [7, 30])
def test_other_sizes_from_a_checkpoint_on(tmp_path, changed, every):
    """Resumed with other chunk or batch sizes: a new chunk begins there, and the pass still has each sample once."""
    died, resumed = Model(), Model()
    first, later = (ModelCheckpoint(tmp_path / n, save_last=True, every_n_train_steps=every) for n in ("1", "2"))
    with pytest.raises(Killed):
        trainer(tmp_path, enable_checkpointing=True, callbacks=[first, Kill(64)]).fit(died, datamodule=data())

    run = trainer(tmp_path, max_epochs=12, enable_checkpointing=True, callbacks=[later])
    run.fit(resumed, datamodule=data(**changed), ckpt_path=first.last_model_path)

    seen = flat(died.seen[: 64 // every * every] + resumed.seen)
    assert sorted(seen[:NUM_SAMPLES]) == list(range(NUM_SAMPLES))
    assert len(set(seen[NUM_SAMPLES : 2 * NUM_SAMPLES])) == len(seen[NUM_SAMPLES : 2 * NUM_SAMPLES])
    assert run.current_epoch == 12


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Model:
    """A run of six chunks that nothing happened to."""
    model = Model()
    trainer(tmp_path_factory.mktemp("whole"), max_epochs=6).fit(model, datamodule=data())
    return model


@pytest.mark.parametrize("checkpoints", CHECKPOINTS)
@pytest.mark.parametrize("killed_at", [76, 91, 113, 145])
def test_killed_and_resumed_equals_uninterrupted(tmp_path, uninterrupted, checkpoints, killed_at):
    """Wherever the run dies and whenever it saved: the rest is seen sample for sample, each chunk is validated once."""
    options, after_validation = CHECKPOINTS[checkpoints]
    whole, died, resumed = uninterrupted, Model(), Model()
    first, later = (ModelCheckpoint(tmp_path / name, save_last=True, **options) for name in ("first", "later"))
    with pytest.raises(Killed):
        trainer(tmp_path, max_epochs=6, enable_checkpointing=True, callbacks=[first, Kill(killed_at)]).fit(
            died, datamodule=data()
        )

    run = trainer(tmp_path, max_epochs=6, enable_checkpointing=True, callbacks=[later])
    run.fit(resumed, datamodule=data(), ckpt_path=first.last_model_path)

    saved = torch.load(first.last_model_path, weights_only=True)
    done = saved["global_step"]
    assert saved["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]["step"] == done
    validated = sum(border <= done if after_validation else border < done for border in BORDERS)
    assert died.seen[:done] + resumed.seen == whole.seen
    assert died.validated[:validated] + resumed.validated == whole.validated
    assert (run.current_epoch, run.global_step) == (6, len(whole.seen))


GROWS = {"size": 20, "resize": {"policy": "grow_while_improving", "least": 5, "most": 40}}
CHOOSES = {"size": 20, "choose": {"policy": "learning_value", "signal": "loss"}}
PACES = {"size": 2, "resize": {"policy": "pace_validation", "fast": 0.001, "slow": 0.0001, "least": 1, "most": 4}}


def adaptive(train, tmp_path, **options):
    """Train five chunks that adapt; return the model and the events of both loaders."""
    torch.manual_seed(0)
    module, model = data(train_chunk_size=train, val_chunk_size=PACES), Model()
    path = options.pop("ckpt_path", None)
    died = False
    try:
        trainer(tmp_path, max_epochs=7, **options).fit(model, datamodule=module, ckpt_path=path)
    except Killed:
        died = True
    return model, [module.train_dataloader().plan, module.val_dataloader().plan], died


@pytest.mark.parametrize("checkpoints", ["every 7 steps", "after validation"])
@pytest.mark.parametrize("train", [GROWS, CHOOSES, [[0, 20], [2, 35]]], ids=["grows", "chooses", "planned"])
def test_chunks_that_adapt_resume_with_the_same_decisions(tmp_path, train, checkpoints):
    """Killed inside the fourth chunk: samples, validations, sizes and choices are those of the run that was not."""
    options = CHECKPOINTS[checkpoints][0]
    first, later = (ModelCheckpoint(tmp_path / name, save_last=True, **options) for name in ("first", "later"))
    whole, plans, _ = adaptive(train, tmp_path)
    died, _, was_killed = adaptive(train, tmp_path, enable_checkpointing=True, callbacks=[first, Kill(75)])

    resumed, again, _ = adaptive(
        train, tmp_path, enable_checkpointing=True, callbacks=[later], ckpt_path=first.last_model_path
    )

    done = torch.load(first.last_model_path, weights_only=True)["global_step"]
    assert was_killed and 0 < done < len(whole.seen)
    assert died.seen[:done] + resumed.seen == whole.seen
    assert whole.validated[-1] == resumed.validated[-1] and len(whole.validated) == 7
    steps = range(done, len(whole.seen))
    for mine, other in zip(again, plans, strict=True):
        assert [mine.locate(s).chunk for s in steps if s >= mine.first_step] == [
            other.locate(s).chunk for s in steps if s >= mine.first_step
        ]
        assert {e for e in mine.events if e.kind != "base" and e.step > 75} == {e for e in other.events if e.step > 75}
    assert train == [[0, 20], [2, 35]] or any(e.reason for e in plans[0].events)


def test_a_metric_that_is_not_logged_is_named(tmp_path):
    """Sizes follow it: the error says what was logged and where to say another."""
    with pytest.raises(ConfigError, match=r"follow the metric 'accuracy', and the model logged .*val_loss.*monitor="):
        trainer(tmp_path).fit(Model(), datamodule=data(train_chunk_size=GROWS, monitor="accuracy"))


@pytest.mark.slow
def test_two_hundred_chunks_keep_memory_flat(tmp_path):
    """A trainer's 200 epochs of chunks: anonymous memory grows by less than 10 MB after the first 20."""
    sizes: list[int] = []

    class Weigh(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            """Note the anonymous memory."""
            pl_module.seen.clear(), pl_module.validated.clear()
            status = Path("/proc/self/status").read_text().split("RssAnon:")[1]
            sizes.append(1024 * int(status.split()[0]))

    trainer(tmp_path, max_epochs=220, callbacks=[Weigh()]).fit(Model(), datamodule=data(train_chunk_size=10))

    assert sizes[-1] - sizes[20] < 10_000_000


def test_no_warning_on_an_ordinary_run(tmp_path):
    """Chunks bring no warnings of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
        trainer(tmp_path, max_epochs=2).fit(Model(), datamodule=data())


@pytest.mark.parametrize(
    "name",
    [
        "SequenceDataset",
        "ChunkedSequenceDataset",
        "QuantizedAutoregressiveAudio",
        "ChunkedQuantizedAutoregressiveAudio",
    ],
)
def test_data_modules_are_lightnings_under_the_same_names(name):
    """Real ``LightningDataModule``s, and those of ``lading.kits.chunked`` at the same time, which are none."""
    ours, plain_one = getattr(in_lightning, name), getattr(chunked, name)

    assert issubclass(ours, LightningDataModule) and issubclass(ours, plain_one)
    assert not issubclass(plain_one, LightningDataModule)
