"""``lading train``: a run from a YAML file, and errors that name file and key."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml

from lading.cli import main
from lading.report import open_run

pytestmark = [
    pytest.mark.needs("torch"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You .*validation_step"),
]

# Written beside each configuration: what a user's own module looks like.
PARTS = """
import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader, TensorDataset

import lading.kits.chunked.datamodule
import lading.train.lightning


def pairs(size, offset=0):
    return TensorDataset(torch.arange(size) + offset, torch.arange(size).float())


class Mine(lading.kits.chunked.SequenceDataset):
    init_defaults = {"size": 40}

    def setup(self, stage=None):
        self.dataset_train, self.dataset_val = pairs(self.size), pairs(6)


class Foreign(LightningDataModule):
    def __init__(self, batch_size=1):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(pairs(40), batch_size=self.batch_size)


class Model(LightningModule):
    seen, validated = [], 0

    def __init__(self, lr=0.1):
        super().__init__()
        self.layer, self.lr = torch.nn.Linear(1, 1), lr

    def training_step(self, batch, batch_idx):
        self.seen.append(batch[0].tolist())
        return self.layer(batch[1][:, None]).square().mean()

    def validation_step(self, batch, batch_idx):
        type(self).validated += 1
        self.log("val_loss", self.layer(batch[1][:, None]).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)
"""
BASE = {
    "dataset": {"class_path": "lading_cli_parts.Mine"},
    "loader": {"batch_size": 4},
    "train": {"train_chunk_size": 4, "val_chunk_size": 1, "seed": 1},
    "trainer": {"max_epochs": 3, "accelerator": "cpu", "enable_progress_bar": False, "enable_model_summary": False},
    "model": {"class_path": "lading_cli_parts.Model", "init_args": {"lr": 1e-3}},
}


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Run ``lading train`` in this process on a changed copy of BASE; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lading_cli_parts.py").write_text(PARTS)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str, **sections) -> tuple[int, str, str]:
        config = {name: value for name, value in {**BASE, **sections}.items() if value is not None}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
        with pytest.raises(SystemExit) as left:
            main(["train", "run.yaml", *arguments])
        shown = capsys.readouterr()
        return left.value.code or 0, shown.out, shown.err

    yield run
    sys.modules.pop("lading_cli_parts", None)


def seen() -> list[list[int]]:
    """Return the batches the model of the last run saw."""
    return sys.modules["lading_cli_parts"].Model.seen


def test_print_config_shows_what_would_be_used(train):
    """With every change made; as YAML, or as JSON."""
    code, text, _ = train("--print-config", "--set", "train.train_chunk_size=500", "--set", "trainer.max_epochs=9")
    _, as_json, _ = train("--print-config", "--json")

    assert code == 0
    assert yaml.safe_load(text)["train"]["train_chunk_size"] == 500
    assert yaml.safe_load(text)["trainer"]["max_epochs"] == 9
    assert json.loads(as_json) == BASE


def test_a_run_leaves_a_directory_that_can_be_asked(train, tmp_path):
    """Chunks cover the data, the ledger holds, configuration and checkpoint lie beside it."""
    code, out, _ = train("--json", run={"dir": "runs/1", "checkpoint_updates": 2})

    outcome, record = json.loads(out), open_run(tmp_path / "runs/1")
    assert code == 0
    assert (outcome["updates"], outcome["epochs"], outcome["data"]["share"]) == (10, 3, 1.0)
    assert outcome["metrics"]["val_loss"] > 0 and outcome["checkpoint"].endswith("last.ckpt")
    assert sorted(n for batch in seen() for n in batch) == list(range(40))
    assert record.verify().holds and len(record.history.arrow) == 10
    assert yaml.safe_load((tmp_path / "runs/1/config.yaml").read_text())["train"]["train_chunk_size"] == 4


@pytest.mark.parametrize("chunked", [True, False])
def test_one_seed_moves_the_order(train, tmp_path, chunked):
    """Seeds 0, 1 and 5 are three orders, in chunks and without; ``seed`` is ``train.seed``; the same seed, the same."""
    sizes = {"train_chunk_size": 4, "val_chunk_size": 1} if chunked else {}
    given = [["--set", "seed=0"], ["--set", "train.seed=1"], ["--set", "seed=5"], ["--set", "seed=5"]]
    orders = []
    for number, arguments in enumerate(given):
        code, _, error = train(*arguments, train=sizes, run={"dir": f"runs/{number}"})
        assert code == 0, error
        orders.append([row["index"] for row in open_run(tmp_path / f"runs/{number}").sql("FROM samples")])

    assert len({tuple(order) for order in orders[:3]}) == 3
    assert orders[2] == orders[3]


def test_a_key_that_nothing_uses_is_refused_when_it_is_set(train, tmp_path):
    """In a file of another program it is noted; typed on purpose it is an error that names what there is."""
    expected = {
        "sede=3": "--set sede: nothing uses it; expected one of dataset, loader",
        "hydra.job=1": "--set hydra.job: nothing uses it; expected one of dataset, loader",
        "run.folder=x": "--set run.folder: nothing uses it; expected one of dir, ledger, mixture, checkpoint_updates",
        "trainer.tpu_cores=8": "--set trainer.tpu_cores: nothing uses it; expected an argument that trainer takes",
        "model.width=8": "--set model.width: nothing uses it; expected an argument that model takes",
        "model.init_args.width=8": "model.init_args.width: expected an argument of lading_cli_parts.Model",
    }
    for assignment, message in expected.items():
        code, _, error = train("--set", assignment)
        assert code == 2 and message in error, (assignment, error)
    assert not (tmp_path / "runs").exists()


def test_two_seeds_are_refused(train):
    """Outside of the sections it is the same seed; one that differs is no seed."""
    same, out, _ = train("--print-config", "--json", seed=1)
    code, _, error = train("--print-config", seed=2)

    assert same == 0 and json.loads(out)["train"]["seed"] == 1 and "seed" not in json.loads(out)
    assert code == 2 and "seed: expected one seed: train.seed is 1, found 2" in error


def test_a_run_that_is_there_is_not_begun_again_but_resumed(train, tmp_path):
    """Without --resume the folder is refused; with it the run continues where it stood."""
    where = {"dir": "runs/1"}
    train(run=where)
    code, _, error = train(run=where)
    first = list(seen())
    resumed, out, _ = train("--resume", "--set", "trainer.max_epochs=6", run=where)

    assert code == 2 and "run.dir: expected a folder without a run, found the run in runs/1. Pass --resume" in error
    assert resumed == 0 and "20 updates in 6 epochs of the trainer" in out and "pass 1, chunk 2/3" in out
    assert len(seen()) - len(first) == 10
    record = open_run(tmp_path / "runs/1")
    assert record.verify().holds and [r["step"] for r in record.history.arrow.to_pylist()] == list(range(20))


def test_chunks_that_adapt_and_a_curriculum_come_from_the_file(train, tmp_path):
    """The words of Python, in YAML: sizes follow the metric, easy samples come first, decisions are in the ledger."""
    np.save(tmp_path / "scores.npy", np.arange(40))
    adapts = {
        "train_chunk_size": {"size": 2, "resize": {"policy": "grow_while_improving", "most": 6}},
        "val_chunk_size": {"size": 1, "resize": "pace_validation"},
        "monitor": "val_loss",
        "curriculum": {"scores": "scores.npy", "start": 0.25, "until": 6, "pacing": "linear"},
        "seed": 1,
    }

    code, _, error = train(train=adapts, run={"dir": "runs/1"})

    record = open_run(tmp_path / "runs/1")
    assert code == 0, error
    assert max(n for batch in seen()[:1] for n in batch) < 10 and max(n for batch in seen() for n in batch) > 30
    assert record.verify().holds and set(record.decisions()["kind"]) == {"rebatch", "validated"}
    for wrong, message in (
        ({"train_chunk_size": {"size": 2, "resize": {"policy": "guess"}}}, "train.train_chunk_size: expected"),
        ({"train_chunk_size": 2, "curriculum": {"start": 0.2}}, "train.curriculum: expected scores"),
    ):
        code, _, error = train(train=wrong)
        assert code == 2 and message in error


def test_weights_of_samples_come_from_the_file(train, tmp_path):
    """A column, classes or a file; what has no weight is not trained on."""
    np.save(tmp_path / "often.npy", np.arange(40) >= 30)

    code, _, error = train(
        train={"train_chunk_size": 2, "sample_weights": "often.npy", "seed": 1}, run={"dir": "runs/1"}
    )

    assert code == 0, error
    assert min(n for batch in seen() for n in batch) >= 30 and open_run(tmp_path / "runs/1").verify().holds
    code, _, error = train(train={"train_chunk_size": 2, "sample_weights": [1, 2]})
    assert code == 2 and "train.sample_weights: expected a column, balanced:column or a .npy file" in error


def test_resume_without_a_checkpoint_starts_at_the_beginning(train):
    """A run that died before its first checkpoint can be started with the same command."""
    code, out, _ = train("--resume", run={"dir": "runs/1"})

    assert code == 0 and "10 updates" in out


def test_a_checkpoint_can_be_named(train, tmp_path):
    """``--checkpoint`` continues from any."""
    train(run={"dir": "runs/1", "checkpoint_updates": 5})
    saved = str(next((tmp_path / "runs/1/checkpoints").glob("epoch*.ckpt")))

    code, out, _ = train("--checkpoint", saved, run={"dir": "runs/1", "ledger": False, "checkpoint_updates": 5})
    missing, _, error = train("--checkpoint", "nowhere.ckpt", run={"dir": "runs/1"})

    assert code == 0 and "10 updates" in out
    assert missing == 2 and "--checkpoint nowhere.ckpt: expected a checkpoint, found no such file" in error


def test_without_chunk_sizes_a_configuration_runs_as_ever(train):
    """Limits hold, from ``trainer`` and from ``train``; nothing is recorded."""
    limits = {**BASE["trainer"], "limit_train_batches": 2}

    code, out, _ = train("--json", train={"limit_val_batches": 1}, trainer=limits)

    assert code == 0 and json.loads(out)["updates"] == 6
    assert not Path("runs").exists()


def test_limits_beside_chunk_sizes_are_ignored_with_a_warning(train):
    """One warning that names the numbers."""
    with pytest.warns(UserWarning, match=r"limit_train_batches=1 ignored: chunk sizes are given") as caught:
        _, out, _ = train("--json", trainer={**BASE["trainer"], "limit_train_batches": 1})

    assert json.loads(out)["updates"] == 10
    assert len([w for w in caught if "ignored: chunk sizes" in str(w.message)]) == 1


LIMITS = {"limit_train_batches": 3, "limit_val_batches": 1}
# The document's eight variants, made small: ten batches of training, two of validation; updates and validation batches
# of two epochs.
VARIANTS = [
    ({"train_chunk_size": 4, "val_chunk_size": 1}, {}, 8, 2),
    ({"train_chunk_size": 4, "limit_val_batches": 1}, {}, 8, 4),
    ({"val_chunk_size": 1, "limit_train_batches": 3}, {}, 20, 2),
    (LIMITS, {}, 6, 2),
    ({}, LIMITS, 6, 2),
    ({"train_chunk_size": 4, "val_chunk_size": 1}, LIMITS, 8, 2),
    ({"train_chunk_size": 4}, LIMITS, 8, 4),
    ({"val_chunk_size": 1}, LIMITS, 20, 2),
]


@pytest.mark.filterwarnings("ignore:.*ignored. chunk sizes are given")
@pytest.mark.parametrize(("sizes", "limits", "updates", "validated"), VARIANTS)
def test_the_documents_variants_train_as_it_says(train, sizes, limits, updates, validated):
    """Chunks, inference, precedence and limits, with a real trainer."""
    trainer = {**BASE["trainer"], **limits, "max_epochs": 2, "num_sanity_val_steps": 0}

    code, out, _ = train("--json", train=sizes, trainer=trainer)

    assert code == 0 and json.loads(out)["updates"] == updates
    assert sys.modules["lading_cli_parts"].Model.validated == validated


def test_a_mixture_of_several_datasets(train, tmp_path):
    """Partitions by name, weights in ``run.mixture``; the ledger knows the shares."""
    sources = {name: {"class_path": "lading_cli_parts.pairs", "init_args": {"size": 40}} for name in ("code", "prose")}
    dataset = {"class_path": "lading.SequenceDataset", "init_args": {"dataset_train": sources}}

    code, _, _ = train(dataset=dataset, run={"dir": "runs/1", "mixture": {"code": 3, "prose": 1}})

    record = open_run(tmp_path / "runs/1")
    assert code == 0 and record.verify().holds
    counts = {"code": 0, "prose": 0}
    for step in range(12):
        for number, count in record.plan.bill(step).counts().items():
            counts[record.plan.names[number]] += count
    assert abs(counts["code"] - 36) <= 2 and sum(counts.values()) == 48


@pytest.mark.parametrize(
    ("class_path", "updates"),
    [
        ("lading_cli_parts.Mine", 10),
        ("lading.kits.chunked.lightning.ChunkedSequenceDataset", 10),
        ("lading.kits.chunked.ChunkedSequenceDataset", 10),
        ("lading.kits.chunked.lightning.SequenceDataset", 10),
    ],
)
def test_every_kind_of_data_module_is_chunked(train, class_path, updates):
    """For Lightning or not, chunked or not: the sizes of the configuration make chunks."""
    sources = {"dataset_train": {"class_path": "lading_cli_parts.pairs", "init_args": {"size": 40}}}
    arguments = {} if class_path.endswith("Mine") else {"init_args": sources}

    code, out, _ = train("--json", dataset={"class_path": class_path, **arguments})

    assert code == 0 and json.loads(out)["updates"] == updates and json.loads(out)["data"]["share"] == 1.0


def test_a_bare_dataset_is_the_training_partition(train):
    """Anything with a length and items."""
    code, out, _ = train("--json", dataset={"class_path": "lading_cli_parts.pairs", "init_args": {"size": 24}})

    assert code == 0 and json.loads(out)["updates"] == 4 + 2 + 4


def test_a_foreign_data_module_runs_as_it_is(train):
    """It gets the loader's arguments that it takes; chunks it cannot have."""
    foreign = {"class_path": "lading_cli_parts.Foreign"}
    code, out, _ = train("--json", dataset=foreign, train=None)
    refused, _, error = train(dataset=foreign)

    assert code == 0 and json.loads(out)["updates"] == 30
    assert refused == 2 and "run.yaml: train.train_chunk_size: expected no chunk size, since dataset" in error


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": None}, "run.yaml: model: expected a class_path (and init_args), found None"),
        ({"dataset": None}, "run.yaml: dataset: expected a class_path"),
        ({"model": {"class_path": "lading_cli_parts.Mine"}}, "model.class_path: expected a LightningModule, found"),
        (
            {"model": {"class_path": "lading_cli_parts.Nobody"}},
            "model.class_path: expected a class that can be imported",
        ),
        ({"dataset": {"class_path": "builtins.object"}}, "dataset.class_path: expected a data module, or a dataset"),
        ({"trainer": {"max_epoch": 3}}, "run.yaml: trainer.max_epoch: expected an argument of Lightning's Trainer"),
        ({"trainer": {"accelerator": "abacus"}}, "run.yaml: trainer: "),
        ({"run": {"ledger": True}}, "run.yaml: run.dir: expected a run directory, since run.ledger is true"),
        (
            {"train": {"train_chunk_size": 0}},
            "run.yaml: train.train_chunk_size: expected an integer from 1 up, or sizes that change "
            "(see lading.Chunks), found 0",
        ),
    ],
)
def test_errors_are_one_line_with_file_and_key(train, sections, message):
    """Exit code 2, and what was expected."""
    code, _, error = train(**sections)

    assert code == 2
    assert message in error and error.count("\n") == 1


@pytest.mark.launch
def test_the_example_killed_and_resumed_is_accepted_by_show_and_verify(tmp_path, monkeypatch, capsys):
    """``lading train examples/tones.yaml``, killed -9 in the middle of a chunk, resumed; history is whole."""
    monkeypatch.chdir(tmp_path)
    example = Path(__file__).parents[3] / "examples" / "tones.yaml"
    small = ["--set", "dataset.init_args.sample_len=40", "--set", "trainer.enable_progress_bar=false"]
    command = [sys.executable, "-m", "lading", "train", str(example), *small]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, "--set", "trainer.max_epochs=500"], **quiet)
    saved, deadline = tmp_path / "runs/tones/checkpoints", time.monotonic() + 3000
    while not list(saved.glob("*-step=[2-9]0.ckpt")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    code, out = run_here(["train", str(example), *small, "--resume", "--json", "--set", "trainer.max_epochs=8"], capsys)

    history = open_run("runs/tones").history.arrow.to_pylist()
    assert code == 0 and [row["step"] for row in history] == list(range(json.loads(out)["updates"]))
    assert {row["attempt"] for row in history} == {0, 1}
    assert run_here(["show", "runs/tones"], capsys)[0] == 0
    code, said = run_here(["verify", "runs/tones"], capsys)
    assert (code, said.splitlines(keepends=True)[0]) == (
        0,
        f"holds: {len(history)} steps of history, digest {digest()}\n",
    )


def run_here(arguments: list[str], capsys) -> tuple[int, str]:
    """Run the command in this process; return exit code and stdout."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code or 0, capsys.readouterr().out


def digest() -> str:
    """Return the digest of the example's run."""
    return f"{open_run('runs/tones').verify().digest:016x}"
