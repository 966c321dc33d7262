"""Law: forget and replay equals never, bit for bit: weights, optimizer, random state; with real frameworks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.launching import torchrun
from tests.train.forgetting import SCRIPT, STEPS, asked, clean_of, script

from lading import open_run
from lading.errors import ResumeError


@pytest.mark.parametrize("by", ["document", "row"])
@pytest.mark.parametrize("case", script.CASES)
def test_torch_loop(tmp_path, case, by):
    """Packing, weights that follow losses, a curriculum, sample weights; accumulation and dropout in each."""
    train = lambda out, resume=None, **never: script.train(tmp_path, tmp_path / out, STEPS, case, resume, never, -1)  # noqa: E731
    with_it = train("a")
    found, never = asked(tmp_path / "a", by)

    with pytest.raises(ResumeError, match="tainted"):
        train("a", tmp_path / "a" / f"checkpoint-{STEPS - 4}")
    again, control = train("a", clean_of(found)), train("b", **never)

    assert again == control != with_it
    assert open_run(tmp_path / "a" / "run").verify().holds


@pytest.mark.launch
def test_torch_loop_on_two_ranks_killed_during_the_replay(tmp_path):
    """A kill -9 of both ranks; the replay is resumed from what it saved itself."""
    for name in ("web", "code"):
        script.corpus(tmp_path, name, 1 if name == "web" else 2)
    where = [tmp_path, tmp_path / "a", STEPS, "policy"]
    torchrun(SCRIPT, 2, *where)
    found, never = asked(tmp_path / "a")
    start = found.clean["step"]

    torchrun(SCRIPT, 2, *where, "--resume", clean_of(found), "--die-at", start + 6, check=False)
    torchrun(SCRIPT, 2, *where, "--resume", tmp_path / "a" / f"checkpoint-{start + 4}")
    torchrun(SCRIPT, 2, tmp_path, tmp_path / "b", STEPS, "policy", "--never", json.dumps(never))

    hashes = [[(tmp_path / out / f"hash-{rank}").read_text() for rank in (0, 1)] for out in "ab"]
    assert hashes[0] == hashes[1]


def test_one_process_killed_during_the_replay(tmp_path):
    """The same with kill -9 of one process, which needs no ranks; only what is killed is a process of its own."""

    def train(out: str, resume: Path | None = None, **never: Any) -> str:
        return script.train(tmp_path, tmp_path / out, STEPS, "packing", resume, never, -1)

    train("a")
    found, never = asked(tmp_path / "a")
    start = found.clean["step"]
    replay = [tmp_path / "a", STEPS, "packing", "--resume", clean_of(found), "--die-at", start + 5]

    killed = subprocess.run([sys.executable, SCRIPT, tmp_path, *map(str, replay)])

    assert killed.returncode == -signal.SIGKILL
    assert train("a", tmp_path / "a" / f"checkpoint-{start + 4}") == train("b", **never)
