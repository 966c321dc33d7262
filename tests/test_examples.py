"""The examples: each is short, and each is run; those that start processes by the tests of their room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

# Run here, with what each must print in the end.
HERE = {
    "spike_hunt.py": ["scraped:111, scraped:1333, scraped:777", "epoch 1: 0 spikes", "the record holds: True"],
    "mixture.py": ["off by at most", "written"],
    "packing.py": ["tokens) was in steps"],
    "audio.py": ["val"],
    "lightning_training.py": ["Verdict(findings=[]"],
    "jax_training.py": ["loss"],
}
# Run by another test, which knows more about them: (file of the test, what it says of the example).
ELSEWHERE = {
    "ddp.py": ("tests/train/test_torch_loop.py", "ddp.py"),
    "jasper.py": ("tests/kits/jasper/test_dataset_example.py", "jasper.py"),
    "jasper_texts.py": ("examples/jasper.py", "jasper_texts"),
    "tones.yaml": ("tests/kits/chunked/test_verbs.py", "tones.yaml"),
    "deepspeed_training.py": ("tests/kits/deepspeed/test_trainer.py", "deepspeed_training.py"),
    "ray_training.py": ("tests/train/scripts/ray_rows.py", "ray_training.py"),
    "adopt_existing_loader.py": ("tests/observe/test_tracking.py", "adopt_existing_loader.py"),
}


# What runs like an example, and is too long for one.
POLICIES = {"../benchmarks/policies.py": ["FollowLosses: ", "LearningValue: ", "metric moves", "written"]}


@pytest.mark.parametrize("example", {**HERE, **POLICIES})
def test_example_runs(example, tmp_path):
    """As a reader would start it, in an empty folder, and with its promised answer."""
    command = [sys.executable, str(EXAMPLES / example)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}

    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path, env=environment)

    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    for words in {**HERE, **POLICIES}[example]:
        assert words in done.stdout, done.stdout[-3000:]


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
    """No one has to search."""
    page = (EXAMPLES / "README.md").read_text()

    assert not [p.name for p in EXAMPLES.iterdir() if p.name != "README.md" and p.suffix and f"({p.name})" not in page]
