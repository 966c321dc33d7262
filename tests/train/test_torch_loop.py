"""The plain PyTorch loop: exact resume, unequal shares, updates that are skipped, kill -9."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.launching import torchrun

from lading.errors import ResumeError
from lading.identity import World
from lading.order import Plan
from lading.report import open_run
from lading.train.torch import CHECKPOINT, mean_loss, process_group

SCRIPT = Path(__file__).parent / "scripts" / "torch_loop.py"
EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"


def _module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem + "_script", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


loop = _module(SCRIPT)


def history(folder):
    """Return the history of a run that verifies."""
    opened = open_run(folder)
    assert opened.verify().holds, opened.verify()
    return opened.history


def test_a_run_in_three_pieces_is_the_run_in_one(tmp_path):
    """Losses to the last bit, dropout included; each update is two steps."""
    loop.run(tmp_path / "whole", dropout=0.3)

    for updates in (4, 9, loop.UPDATES):
        loop.run(tmp_path / "pieces", updates=updates, dropout=0.3)

    whole, pieces = history(tmp_path / "whole"), history(tmp_path / "pieces")
    assert pieces["loss"] == whole["loss"] and pieces["digest"] == whole["digest"]
    assert pieces["update"] == whole["update"] == [u for u in range(loop.UPDATES) for _ in range(2)]
    assert sorted(set(pieces["attempt"])) == [0, 1, 2]


@pytest.mark.parametrize("damage", [lambda b: b[:-200], lambda b: b"", lambda b: b"\x80\x04nonsense"])
def test_a_broken_checkpoint_is_one_sentence(tmp_path, damage):
    """Cut off, empty, or something else: named, with the way out, and no pickle is opened."""
    loop.run(tmp_path, updates=2)
    file = tmp_path / CHECKPOINT
    file.write_bytes(damage(file.read_bytes()))

    with pytest.raises(ResumeError, match=r"cannot be read: .* take an older one"):
        loop.run(tmp_path, updates=4)


def test_another_files_dict_is_no_checkpoint(tmp_path):
    """What it holds and what was expected are said."""
    loop.run(tmp_path, updates=2)
    torch.save({"weights": 1}, tmp_path / CHECKPOINT)

    with pytest.raises(ResumeError, match=r"holds \['weights'\], expected a checkpoint with model"):
        loop.run(tmp_path, updates=4)


def test_what_came_after_the_last_checkpoint_is_done_again(tmp_path):
    """An exception in the middle costs what is not saved, and history says so."""
    calls = []

    def failing(model, batch):
        calls.append(batch)
        if len(calls) == 20:
            raise RuntimeError("the disk is on fire")
        return loop.losses_of(model, batch)

    with pytest.raises(RuntimeError, match="on fire"):
        loop.run(tmp_path, losses=failing)
    loop.run(tmp_path)

    assert history(tmp_path)["attempt"] == [0] * 16 + [1] * 14


def test_an_update_that_is_not_finite_is_skipped(tmp_path):
    """The weights stay finite, the ledger says which steps no one used."""
    calls = []

    def overflowing(model, batch):
        calls.append(batch)
        return loop.losses_of(model, batch) * (float("inf") if len(calls) == 3 else 1.0)

    skipped = loop.run(tmp_path, updates=4, losses=overflowing)

    table = history(tmp_path)
    saved = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    assert skipped == 1 and table["fate"] == ["applied"] * 2 + ["skipped"] * 2 + ["applied"] * 4
    assert "update 1 were not finite" in table["reason"][2]
    assert all(weight.isfinite().all() for weight in saved["model"].values())


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 9])
def test_the_mean_over_processes_is_the_mean_over_samples(world_size):
    """With unequal shares, padding rows, and processes that have nothing but padding."""
    plan = Plan.make({"a": 11}, batch_size=7, shuffle="none")

    for step, real in ((0, range(7)), (1, range(7, 11))):
        bills = [plan.bill(step, world=World(rank, world_size), pad=True) for rank in range(world_size)]
        parts = [mean_loss(torch.from_numpy(bill.idx).float(), bill) for bill in bills]
        assert (sum(parts) / world_size).item() == pytest.approx(sum(real) / len(real))


def test_a_plain_script_stays_alone(monkeypatch):
    """Without a launcher there is no process group."""
    monkeypatch.delenv("RANK", raising=False)

    with process_group():
        assert not torch.distributed.is_initialized()


def test_the_example_runs(tmp_path):
    """``examples/ddp.py`` as a plain script."""
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "--updates", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000)

    assert "20 updates, 0 skipped" in done.stdout, done.stderr
    assert history(tmp_path)["step"] == [*range(20)]


@pytest.mark.launch
def test_two_processes_killed_go_on_as_one(tmp_path):
    """``kill -9`` at a random step; the loss curve is that of an uninterrupted process."""
    at = random.randrange(9, 2 * loop.UPDATES - 1)
    killed = torchrun(SCRIPT, 2, tmp_path / "killed", at, check=False)
    assert "SIGKILL" in killed.stderr, killed.stderr[-3000:]

    loop.run(tmp_path / "killed")
    loop.run(tmp_path / "whole")

    whole, resumed = history(tmp_path / "whole"), history(tmp_path / "killed")
    assert sorted(set(resumed["ranks"])) == [1, 2], f"killed at {at}"
    assert resumed["digest"] == whole["digest"]
    assert resumed["loss"] == pytest.approx(whole["loss"], abs=1e-5), f"killed at {at}"
