"""``lading audit``: findings for people, for programs, and as an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from tests.cli.calling import lading

pytestmark = pytest.mark.needs("torch")

LOADERS = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

data = TensorDataset(torch.arange(42))
ready = DataLoader(data, 4)

def sound():
    return DataLoader(data, 4, shuffle=True)

def cut():
    return DataLoader(data, 4, drop_last=True)

def said(rank, world_size):
    return DataLoader(data, 4, sampler=DistributedSampler(data, world_size, rank, shuffle=True))

def from_environment():
    size = int(os.environ.get("WORLD_SIZE", 1))
    return DataLoader(data, 4, sampler=range(int(os.environ.get("RANK", 0)), 42, size))
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    """A module with loaders in the current folder."""
    (tmp_path / "audited_loaders.py").write_text(LOADERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "audited_loaders", raising=False)


def test_sound_loader_holds(capsys):
    """Exit code 0, and a sentence."""
    assert lading("audit", "audited_loaders:sound") == 0
    assert capsys.readouterr().out.strip() == "nothing wrong in 2 epochs"
    assert lading("audit", "audited_loaders:ready") == 0


def test_finding_is_printed_with_evidence_and_fixing_line(capsys):
    """Exit code 1, and the fault in plain words."""
    assert lading("audit", "audited_loaders:cut", "--epochs", "3") == 1

    out = capsys.readouterr().out
    assert out.startswith("dropped tail: the last 2 samples of every epoch are dropped:")
    assert "seen:" in out
    assert "drop_last=False" in out


def test_json_is_for_programs(capsys):
    """The same as data."""
    assert lading("audit", "audited_loaders:cut", "--json") == 1

    answer = json.loads(capsys.readouterr().out)
    assert answer["loader"] == "audited_loaders:cut"
    (finding,) = answer["findings"]
    assert finding["fault"] == "dropped tail"
    assert set(finding) == {"fault", "message", "evidence", "fix", "level"}


def test_loader_is_made_for_every_rank(capsys):
    """Ranks come as arguments where the function takes them, and in the environment."""
    assert lading("audit", "audited_loaders:said", "--world-size", "3", "--set-epoch") == 0
    assert lading("audit", "audited_loaders:said", "--world-size", "3") == 1
    assert lading("audit", "audited_loaders:from_environment", "--world-size", "2") == 0
    assert lading("audit", "audited_loaders:sound", "--world-size", "2") == 1
    assert "in ranks 0, 1" in capsys.readouterr().out


def test_limit_of_the_loop_can_be_told(capsys):
    """What a training loop takes of each epoch is part of the question."""
    assert lading("audit", "audited_loaders:ready", "--limit-batches", "3") == 1
    assert "always the same first batches" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("audited_loaders", "LOADER 'audited_loaders': expected MODULE:NAME, for example train:make_loader"),
        ("no_such_module:make", "no_such_module cannot be imported"),
        ("audited_loaders:missing", "audited_loaders has no 'missing'; it has"),
        ("audited_loaders:data", "found a TensorDataset: expected a torch DataLoader"),
    ],
)
def test_wrong_use_is_one_readable_line(name, says, capsys):
    """Exit code 2 and no traceback."""
    assert lading("audit", name) == 2

    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1


def test_world_size_below_one_is_wrong_use(capsys):
    """Every number is checked."""
    assert lading("audit", "audited_loaders:sound", "--world-size", "0") == 2
    assert "--world-size is 0: expected at least 1" in capsys.readouterr().err


def test_without_torch_the_audit_names_the_package_to_install(tmp_path):
    """A line, not a traceback."""
    (tmp_path / "plain_loaders.py").write_text("def make():\n    return [1, 2, 3]\n")
    code = "import sys; sys.modules['torch'] = None; from lading.cli import main; main(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    done = subprocess.run(
        [sys.executable, "-c", code, "audit", "plain_loaders:make"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
    )

    assert done.returncode not in (0, 1) and "Traceback" not in done.stderr
    assert "needs torch, which is not installed: pip install 'lading[torch]'" in " ".join(done.stderr.split())
