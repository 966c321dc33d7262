"""The configuration: the document's eight variants, and errors that name file, key, expected, found."""

from __future__ import annotations

import pytest

from lading.errors import ConfigError
from lading.kits.chunked import Config, read_config

# Each variant of the document, and what it says: chunked, train size, val size (None: inferred), limits that hold.
VARIANTS = {
    "full": (
        "train: {train_chunk_size: 2000, val_chunk_size: 200}\nloader: {batch_size: 32}",
        (True, 2000, 200, {}),
    ),
    "train only, limit in train": (
        "train: {train_chunk_size: 2000, limit_val_batches: 200}\nloader: {batch_size: 32}",
        (True, 2000, None, {}),
    ),
    "val only, limit in train": (
        "train: {val_chunk_size: 200, limit_train_batches: 2000}\nloader: {batch_size: 32}",
        (True, None, 200, {}),
    ),
    "standard, limits in train": (
        "train:\n  limit_train_batches: 2000\n  limit_val_batches: 200\nloader: {batch_size: 32}",
        (False, None, None, {"limit_train_batches": 2000, "limit_val_batches": 200}),
    ),
    "existing, limits in trainer": (
        "trainer: {limit_train_batches: 2000, limit_val_batches: 200}",
        (False, None, None, {"limit_train_batches": 2000, "limit_val_batches": 200}),
    ),
    "migrated, full": (
        "trainer: {limit_train_batches: 2000, limit_val_batches: 200}\n"
        "train: {train_chunk_size: 2000, val_chunk_size: 200}",
        (True, 2000, 200, {}),
    ),
    "migrated, train only": (
        "trainer: {limit_train_batches: 2000, limit_val_batches: 200}\ntrain: {train_chunk_size: 2000}",
        (True, 2000, None, {}),
    ),
    "migrated, val only": (
        "trainer: {limit_train_batches: 2000, limit_val_batches: 200}\ntrain: {val_chunk_size: 200}",
        (True, None, 200, {}),
    ),
}


@pytest.fixture
def config_of(tmp_path):
    """Read a configuration from text."""

    def read(text: str, *assignments: str) -> Config:
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return read_config(path, assignments)

    return read


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_documents_variants_behave_as_it_says(config_of, variant):
    """Chunking, inference and precedence, for each of the eight; limits hold or are ignored for real."""
    text, (chunked, train, val, limits) = VARIANTS[variant]

    config = config_of(text)
    before, after = config.sizes(), config.sizes(train_batches=5000, val_batches=77)

    assert (before.enabled, before.train, before.val) == (chunked, train, val)
    if chunked:
        assert (after.train, after.val) == (train or 5000, val or 77)
    assert config.trainer_arguments() == limits
    assert bool(before.ignored) == (chunked and "limit" in text)


def test_trainer_limits_take_precedence_over_tolerated_ones(config_of):
    """``trainer:`` is where limits belong."""
    config = config_of("trainer: {limit_train_batches: 5, max_epochs: 2}\ntrain: {limit_train_batches: 9}")

    assert config.trainer_arguments() == {"max_epochs": 2, "limit_train_batches": 5}


def test_everything_a_file_says_is_kept(config_of):
    """All six sections; scientific numbers are numbers; nothing stands for nothing."""
    config = config_of(
        "dataset: {class_path: a.B, init_args: {lr: 1e-3, name: 1e3x}}\nmodel: a.Model\nrun:\n"
        "loader: {batch_size: 4, seed: null}\ntrainer: {max_epochs: 3, strategy: {class_path: x.Y}}"
    )

    assert config.dataset is not None and config.dataset.init_args == {"lr": 0.001, "name": "1e3x"}
    assert config.as_dict() == {
        "dataset": {"class_path": "a.B", "init_args": {"lr": 0.001, "name": "1e3x"}},
        "loader": {"batch_size": 4},
        "trainer": {"max_epochs": 3, "strategy": {"class_path": "x.Y"}},
        "model": {"class_path": "a.Model"},
    }


def test_assignments_change_values_before_they_are_checked(config_of):
    """``--set`` reaches any key, also one that is not there."""
    config = config_of(
        "train: {train_chunk_size: 2000}", "train.train_chunk_size=500", "run.dir=runs/x", "model.class_path=a.B"
    )

    assert config.sizes().train == 500 and config.run["dir"] == "runs/x" and config.model is not None
    with pytest.raises(ConfigError, match=r"run\.yaml: train\.train_chunk_size: expected an integer.*found 'many'"):
        config_of("train: {}", "train.train_chunk_size=many")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "train: {train_chunk_size: 0}",
            r"train\.train_chunk_size: expected an integer from 1 up, or sizes .*found 0",
        ),
        (
            "train: {val_chunk_size: '200'}",
            r"train\.val_chunk_size: expected an integer from 1 up, or sizes .*found '200'",
        ),
        ("train: {val_chunk_size: 2.5}", r"train\.val_chunk_size: .*found 2\.5"),
        (
            "train: {train_chunk_sise: 5}",
            r"train\.train_chunk_sise: unknown key.*Did you mean train\.train_chunk_size\?",
        ),
        ("loader: {batch_size: big}", r"loader\.batch_size: expected an integer from 1 up, found 'big'"),
        ("loader: {shuffle: 1}", r"loader\.shuffle: expected true or false, found 1"),
        (
            "trainer: {limit_val_batches: -1}",
            r"trainer\.limit_val_batches: expected an integer of batches, or a share",
        ),
        ("trainer: 7", r"trainer: expected a section of keys and values, found 7"),
        ("run: {mixture: {a: -1}}", r"run\.mixture: expected a weight from 0 up for each dataset"),
        ("model: {class: a.B}", r"model: expected a class_path \(and init_args\), found the keys class"),
        ("model: {class_path: a.B, init_args: 3}", r"model\.init_args: expected arguments by name, found 3"),
        ("dataset: [1]", r"dataset: expected a class_path"),
        ("trains: {}", r"trains: unknown key; expected one of dataset, loader.*Did you mean train"),
        ("- 1", r"expected a mapping of sections, found list"),
        ("train: {a: 1", r"not YAML: "),
        ("train: {seed: 1}\nloader: {batch_size: 2}\ntrain: {seed: 2}", r"train: is there twice, in lines 1 and 3"),
    ],
)
def test_errors_name_file_key_expected_and_found(config_of, text, message):
    """Whatever is wrong, the message says where and what was meant to be there."""
    with pytest.raises(ConfigError, match=r"run\.yaml: " + message):
        config_of(text)


def test_a_missing_file_and_wrong_assignments_are_said(tmp_path, config_of):
    """The command line is checked as the file is."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: expected a file that can be read, found No such file"):
        read_config(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match=r"--set train: expected section\.key=value"):
        config_of("train: {}", "train")
    with pytest.raises(ConfigError, match=r"--set train\.seed\.x=1: x would be set inside 5, which is no section"):
        config_of("train: {seed: 5}", "train.seed.x=1")
    with pytest.raises(ConfigError, match=r"--set train\.seed=\[: not YAML"):
        config_of("train: {}", "train.seed=[")
    with pytest.raises(ConfigError, match=r"<config>: \(whole file\): expected the sections"):
        Config.from_dict([1])
