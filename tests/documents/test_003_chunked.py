"""Document 003, chunked training: its sketches, its configurations, and the files of s4 that must work unchanged."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import yaml
from tests.documents.contract import check_arguments, promised
from torch.utils.data import TensorDataset

import lading
from lading import ChunkedDataLoader, ChunkedSampler, ChunkedSequenceDataset, ChunkedTrainingMixin
from lading.cli import main
from lading.errors import ConfigError
from lading.kits.chunked import audio, read_config

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You .*validation_step"),
]
S4 = Path(__file__).parent / "s4"
NAMES = {
    "ChunkedSampler": ("order", "dataset_size, chunk_size, seed=42, shuffle=True"),
    "ChunkedDataLoader": ("loader", "dataset, batch_size, chunk_size=None"),
    "SequenceDataset": ("kits.chunked", ""),
    "ChunkedSequenceDataset": ("kits.chunked", ""),
    "ChunkedTrainingMixin": ("kits.chunked", "config"),
    "QuantizedAudioDataset": (
        "kits.chunked",
        "path, bits=8, ratio_min=0, ratio_max=1, sample_len=None, quantization='linear', "
        "return_type='autoregressive', drop_last=False, target_sr=None, context_len=None, pad_len=None",
    ),
    "ChunkedQuantizedAudioDataset": ("kits.chunked", "path"),
    "QuantizedAutoregressiveAudio": ("kits.chunked", "path"),
    "ChunkedQuantizedAutoregressiveAudio": ("kits.chunked", "path"),
}
# Sizes are in samples here and in batches there; the first line of the docstring says which.
UNITS = {
    "ChunkedSampler": "samples",
    "ChunkedDataLoader": "batches",
    "ChunkedSequenceDataset": "batches",
    "ChunkedTrainingMixin": "batches",
    "ChunkedQuantizedAudioDataset": "samples",
    "ChunkedQuantizedAutoregressiveAudio": "batches",
}

PARTS = """
import torch
from lightning.pytorch import LightningModule


class Autoregressive(LightningModule):
    def __init__(self, bits=8):
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(2**bits, 8), torch.nn.Linear(8, 2**bits)
        self.batches = {"train": 0, "val": 0}

    def loss(self, batch, kind):
        x, y, names = batch
        self.batches[kind] += 1
        return torch.nn.functional.cross_entropy(self.out(self.embed(x)).flatten(0, 1), y.flatten(), ignore_index=-100)

    def training_step(self, batch, batch_idx):
        return self.loss(batch, "train")

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.loss(batch, "val"))

    def on_validation_epoch_end(self):
        self.log_dict({f"batches/{kind}": float(n) for kind, n in self.batches.items()})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with recordings, the user's own module and the files of s4."""
    for i in range(20):
        t = np.arange(900 + 10 * i) / 8000
        (tmp_path / f"recordings/{i % 2}").mkdir(parents=True, exist_ok=True)
        soundfile.write(tmp_path / f"recordings/{i % 2}/{i}.wav", 0.5 * np.sin(t * (900 + 90 * i)), 8000)
    (tmp_path / "s4_parts.py").write_text(PARTS)
    for file in S4.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("s4_parts", None)


def train(capsys, name: str, *assignments: str) -> dict:
    """Run ``lading train`` on a file of s4; return what it answered, with the note."""
    quiet = ["trainer.enable_progress_bar=false", "trainer.enable_model_summary=false", "trainer.accelerator=cpu"]
    quiet += ["trainer.enable_checkpointing=false"]
    with pytest.raises(SystemExit) as left:
        main(["train", name, "--json", *(f"--set={word}" for word in (*quiet, *assignments))])
    shown = capsys.readouterr()
    assert not left.value.code, shown.err
    return {**json.loads(shown.out), "error": shown.err}


# What each file trains per epoch of the trainer without chunk sizes, and what of it is not used.
FILES = {
    "youtubemix.yaml": (
        10,
        "defaults, task, encoder, decoder, optimizer, scheduler, loader.train_resolution, loader.eval_resolution, "
        "train.mode, train.interval, train.ema, dataset.__l_max, model._name_, "
        "model.n_layers, model.dropout, trainer.gpus, trainer.weights_summary, trainer.progress_bar_refresh_rate, "
        "trainer.track_grad_norm",
    ),
    "sc09.yaml": (
        16,
        "defaults, _name_, mode, task, optimizer, scheduler, wandb, callbacks, train.mode, train.test, "
        "train.state, trainer._target_",
    ),
    "musdb18mono.yaml": (
        9,
        "defaults, task, optimizer, scheduler, train.mode, dataset._name_, model._name_, model.d_model, model.pool, "
        "trainer.amp_level",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_s4_trains_unchanged_and_one_note_lists_what_was_not_used(folder, capsys, caplog, name):
    """No chunk sizes: limits hold as ever; foreign keys are kept, named once, and stop nothing."""
    updates, unused = FILES[name]

    outcome = train(capsys, name)

    assert outcome["updates"] == updates
    assert set(outcome["unused"]) == set(unused.split(", "))
    notes = [record.getMessage() for record in caplog.records if "not used" in record.getMessage()]
    assert len(notes) == 1 and notes[0].startswith(f"note: {name}: not used: ")
    assert all(key in notes[0] for key in unused.split(", "))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore:limit_")
def test_the_same_file_trains_in_chunks_where_sizes_are_given(folder, capsys, name):
    """One line more: chunks of 4 batches, validation after each, and the limits are ignored."""
    outcome = train(capsys, name, "train.train_chunk_size=4", "train.val_chunk_size=2", "trainer.max_epochs=3",
        "trainer.num_sanity_val_steps=0")  # fmt: skip

    assert outcome["updates"] == 12
    assert outcome["data"]["current_chunk"] == 2
    assert outcome["metrics"]["batches/val"] in (5.0, 6.0)  # three chunks; the last of a pass may be short


def test_foreign_keys_are_kept_and_shown(folder):
    """Nothing of the file is lost: what is read is what it says."""
    for name in FILES:
        written = yaml.safe_load((folder / name).read_text())
        kept = read_config(name).as_dict()
        for section, value in written.items():
            expected = {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value
            shown = kept[section]
            assert shown == expected or shown.items() >= expected.items()  # and the class that a name stands for


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("train.train_chunk_sise=4", r"train\.train_chunk_sise: unknown key.*Did you mean train\.train_chunk_size"),
        ("loader.batchsize=4", r"loader\.batchsize: unknown key.*Did you mean loader\.batch_size"),
        ("trainers.max_epochs=4", r"trainers: unknown key.*Did you mean trainer"),
        ("trainer.max_epoch=4", r"trainer\.max_epoch: expected an argument of Lightning's Trainer, such as max_epochs"),
        ("dataset.sample_length=4", None),
        ("model.bitss=4", r"model\.bitss: expected an argument of s4_parts\.Autoregressive. Did you mean bits"),
        ("dataset.sample_len='${l_max}'", r"dataset\.sample_len: expected a value, found '\$\{l_max\}'. Hydra's"),
        ("train.train_chunk_size=4.5", r"train\.train_chunk_size: expected an integer from 1 up, .*, found 4\.5"),
    ],
)
def test_misspellings_and_wrong_values_are_still_refused(folder, capsys, assignment, words):
    """A key that looks like one of ours is not taken for another program's."""
    if words is None:  # a data module takes any option, as s4's do
        assert train(capsys, "youtubemix.yaml", assignment)["updates"] == 10
        return
    with pytest.raises(SystemExit) as left:
        main(["train", "youtubemix.yaml", "--set", assignment])
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("lading: youtubemix.yaml: ") or "--set" in error
    assert re.search(words, error), error


def test_a_name_we_have_no_class_for_is_said(folder, capsys):
    """``_name_`` alone names a class of s4's registry; the way out is a class_path."""
    with pytest.raises(SystemExit) as left:
        main(["train", "youtubemix.yaml", "--set", "model={_name_: sashimi, n_layers: 8}"])

    assert left.value.code == 2
    assert "model: expected a class_path (and init_args), found the keys _name_, n_layers; _name_ is 'sashimi'" in (
        capsys.readouterr().err
    )
    config = read_config("sc09.yaml", ["model={n_layers: 8}"])
    assert config.model is not None
    with pytest.raises(ConfigError, match=r"model: expected a class_path .* found the keys n_layers\. Name the class"):
        config.model.make()


def test_the_sketches_of_the_document_work():
    """Sampler, loader, data module and mixin by the names and arguments that it prints."""
    sampler = ChunkedSampler(dataset_size=10, chunk_size=4, seed=42)
    sampler.set_chunk(2)
    assert isinstance(sampler, torch.utils.data.Sampler) and len(sampler) == len(list(sampler)) == 2
    data = TensorDataset(torch.arange(10), torch.arange(10))
    loader = ChunkedDataLoader(data, batch_size=2, chunk_size=2, limit_batches=1, num_workers=0)
    assert loader.use_chunked and loader.effective_chunk_size == 2
    assert (loader.current_chunk, loader.total_chunks) == (0, 3)
    seen = [x for _ in range(loader.total_chunks) for batch in loader for x in batch[0].tolist()]
    assert sorted(seen) == list(range(10)) and loader.current_chunk == 3
    standard = ChunkedDataLoader(data, batch_size=2, limit_batches=1)
    assert not standard.use_chunked and len(standard) == len(standard.standard_dataloader) == 5
    module = ChunkedSequenceDataset(data, data, train_chunk_size=2, loader={"batch_size": 2})
    assert module.use_chunked_training and module.explicit_train_chunk_size == 2
    assert module.explicit_val_chunk_size is None and module.val_chunk_size == 5
    assert (module.current_train_chunk, module.current_val_chunk) == (0, 0)
    mixin = ChunkedTrainingMixin({"train": {"val_chunk_size": 3}})
    assert mixin.chunked_training_enabled and mixin.explicit_val_chunk_size == 3


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_the_contract(name):
    """From ``lading`` and from the stage, arguments by place, with the defaults that are promised."""
    stage, written = NAMES[name]

    check_arguments(promised(name, stage), written)


@pytest.mark.parametrize("name", UNITS)
def test_the_first_line_of_a_docstring_says_the_unit(name):
    """ "Docstrings say so in their first line": what is counted, samples or batches."""
    first = inspect.getdoc(getattr(lading, name)).splitlines()[0]

    assert re.search(rf"counts? {UNITS[name]}", first), first


def test_the_functions_of_audio_are_plain_functions():
    """Encoders, decoders and what they are made of, all with the bits last."""
    for name in ("quantize", "dequantize", "linear_encode", "linear_decode", "mu_law_encode", "mu_law_decode"):
        assert list(inspect.signature(getattr(audio, name)).parameters)[1:] == ["bits"]
    share = inspect.signature(promised("QuantizedAutoregressiveAudio", "kits.chunked")).parameters["train_percentage"]
    assert share.default == 0.88
