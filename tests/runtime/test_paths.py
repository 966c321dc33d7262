"""Paths: every one that a user gives refuses an address, before anything is made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cli.calling import lading
from torch.utils.data import DataLoader

from lading import (
    BatchTracker,
    DsTrainingArguments,
    JASPERSteeringDataset,
    Ledger,
    Windows,
    build_jasper_dataset,
    build_tokens,
    open_run,
    track,
)
from lading.errors import ConfigError
from lading.kits.chunked.audio.soundfile import audio_files
from lading.kits.chunked.config import read_config
from lading.kits.formats import MDSDataset, MegatronDocuments, write_megatron
from lading.ledger.compact import compact
from lading.ledger.seal import seal
from lading.order.packing.file import open_index
from lading.report.folder import named_runs
from lading.runtime.paths import local_path
from lading.source.tokens.store import TokenStore

ADDRESS = "s3://bucket/run"
TAKES_A_PATH: dict[str, Callable[[str | Path], object]] = {
    "Ledger": Ledger,
    "track": lambda path: track(DataLoader([1, 2]), path),
    "open_run": open_run,
    "compact": compact,
    "seal": seal,
    "named_runs": lambda path: named_runs([path]),
    "BatchTracker.dump": lambda path: BatchTracker().dump(path),
    "build_tokens, out": lambda path: build_tokens([__file__], path),
    "build_tokens, inputs": lambda path: build_tokens([path], "out"),
    "TokenStore": TokenStore,
    "Windows": lambda path: Windows(path, 8),
    "open_index": open_index,
    "MDSDataset": MDSDataset,
    "MegatronDocuments": MegatronDocuments,
    "write_megatron": lambda path: write_megatron([np.arange(3)], path),
    "JASPERSteeringDataset": lambda path: JASPERSteeringDataset(path, "train"),
    "build_jasper_dataset": lambda path: build_jasper_dataset(path, []),
    "DsTrainingArguments": lambda path: DsTrainingArguments(output_dir=str(path)).run_dir,
    "audio_files": audio_files,
    "read_config": read_config,
}


@pytest.mark.parametrize("given", [ADDRESS, Path(ADDRESS), "hf://datasets/a/b"])
@pytest.mark.parametrize("name", TAKES_A_PATH)
def test_an_address_is_refused_and_nothing_is_made(tmp_path: Path, monkeypatch, name: str, given: str | Path):
    """``Path("s3://bucket")`` is a folder called ``s3:``; training would go on beside the bucket."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=r"is an address: expected a path of this machine"):
        TAKES_A_PATH[name](given)

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "words",
    [
        ["ls", ADDRESS],
        ["show", ADDRESS],
        ["verify", ADDRESS],
        ["compact", ADDRESS],
        ["seal", ADDRESS],
        ["demo", "--run", ADDRESS],
        ["plan", "s3://bucket/plan.yaml"],
        ["train", "s3://bucket/train.yaml"],
        ["tokens", "show", ADDRESS],
    ],
)
def test_the_command_refuses_an_address_as_wrong_use(tmp_path: Path, monkeypatch, capsys, words: list[str]):
    """One sentence, exit code 2."""
    monkeypatch.chdir(tmp_path)

    assert lading(*words) == 2

    assert "is an address: expected a path of this machine" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("given", ["runs/7", "/runs/7", "a b/12:30", "c:/x", "x:y/z", "./s3:/x", ".", "run:7"])
def test_what_may_be_a_file_is_a_path(given: str):
    """Colons are legal in names."""
    assert local_path(given) == Path(given)
