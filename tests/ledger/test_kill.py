"""Law 8 with real kills: whatever dies when, history is what the newest model was trained on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.campaigns.kill_soak import check, survive

from lading.report import open_run

HERE = Path(__file__).parent


@pytest.mark.launch
def test_six_attempts_killed_in_a_random_tree(tmp_path: Path):
    """1 to 4 ranks, killed with -9 at random moments, resumed from any checkpoint; checked after every kill."""
    seen = survive(tmp_path, 6, seed=7)

    assert check(seen) >= 5
    command = [sys.executable, "-m", "lading", "verify", tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.launch
def test_a_rank_killed_under_torchrun(tmp_path: Path):
    """Two ranks with a real process group; one is killed; three ranks resume and finish."""
    script = str(HERE / "torchrun_trainer.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    pid_file, deadline = tmp_path / "rank-1.pid", time.monotonic() + 3000
    command = [*launcher, "--nproc-per-node=2", script, str(tmp_path), "kill"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        while not pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        assert first.wait(3000) != 0

    run = open_run(tmp_path / "run")
    assert run.verify().holds
    assert len(run.history) >= json.loads((tmp_path / "state.json").read_text())["step"] > 0

    done = subprocess.run([*launcher, "--nproc-per-node=3", script, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    run = open_run(tmp_path / "run")
    assert run.history["step"] == list(range(60))
    assert [a.launch.world_size for a in run.evidence.attempts.values()] == [2, 3]
    assert run.verify().holds
