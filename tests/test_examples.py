"""The examples: each is short, and each is run; those that start processes by the tests of their room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

# Run here, with what each must print in the end.
HERE = {
    "adopt_existing_loader.py": ["byte for byte the same: True", "the record holds"],
    "spike_hunt.py": ["[('web', 1234), ('web', 1235), ('web', 1236)]", "has 0 spikes, the record holds: True"],
    "mixture.py": ["off by at most", "written"],
    "packing.py": ["tokens) was in steps"],
    "audio.py": ["val"],
    "lightning_training.py": ["Verdict(findings=[]"],
    "jax_training.py": ["loss"],
}
# Run by another test, which knows more about them: (file of the test, what it says of the example).
ELSEWHERE = {
    "ddp.py": ("tests/train/test_torch_loop.py", "ddp.py"),
    "jasper.py": ("tests/source/test_jasper_example.py", "jasper.py"),
    "jasper_texts.py": ("examples/jasper.py", "jasper_texts"),
    "tones.yaml": ("tests/cli/test_train_cli.py", "tones.yaml"),
    "deepspeed_training.py": ("tests/test_examples.py", "test_the_deepspeed_example_runs"),
}


@pytest.mark.parametrize("example", HERE)
def test_example_runs(example, tmp_path):
    """As a reader would start it, in an empty folder, and with its promised answer."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)], capture_output=True, text=True, timeout=250, cwd=tmp_path
    )

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for words in HERE[example]:
        assert words in done.stdout, done.stdout[-3000:]


@pytest.mark.launch
def test_the_deepspeed_example_runs(tmp_path, monkeypatch):
    """It trains, evaluates, and leaves a run that can be asked."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    command = [sys.executable, str(EXAMPLES / "deepspeed_training.py"), str(tmp_path / "ds"), "--max-steps", "20"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=250, cwd=tmp_path)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "ask: lading mix" in done.stdout
    assert (tmp_path / "ds" / "run.json").exists()


def test_every_example_is_run_and_short():
    """A new example is added to a list, or this fails; 80 lines are enough to show one thing."""
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".yaml")}
    long = {name: n for name in there if (n := len((EXAMPLES / name).read_text().splitlines())) >= 80}

    assert there == {*HERE, *ELSEWHERE}
    assert not long


def test_examples_run_elsewhere_are_named_there():
    """Who says that another test runs it can be taken at their word."""
    for example, (test, words) in ELSEWHERE.items():
        assert words in (ROOT / test).read_text(), f"{test} does not mention {example}"


def test_the_page_of_examples_lists_them_all():
    """Nobody has to search."""
    page = (EXAMPLES / "README.md").read_text()

    assert not [p.name for p in EXAMPLES.iterdir() if p.name != "README.md" and p.suffix and f"({p.name})" not in page]
