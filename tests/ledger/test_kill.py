"""Law 8 with real kills: whatever dies when, history has each step once and equals the plan."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lading.report import open_run

HERE = Path(__file__).parent


def survive(path: Path, kills: int, seed: int) -> list[dict]:
    command = [sys.executable, str(HERE / "kill_driver.py"), str(path), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LADING_NUMBA": "0"}, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(path: Path, seen: list[dict], kills: int) -> None:
    killed = [life for life in seen if -signal.SIGKILL in life["codes"]]
    assert len(killed) >= kills * 0.6  # an attempt may be done before its turn comes
    for life in seen:
        if "nothing" not in life:
            assert life["holds"], life["faults"]
            assert life["each_once"]
            assert not life["lost"], "a checkpoint was ahead of the ledger"
    assert seen[-1]["steps"] == 300
    done = subprocess.run([sys.executable, "-m", "lading", "verify", str(path)], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.launch
def test_ten_kills_in_a_row(tmp_path: Path):
    """1 to 3 ranks, killed with -9 at random moments, resumed from random checkpoints; verified after every kill."""
    check(tmp_path / "run", survive(tmp_path / "run", 10, seed=7), 10)


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.timeout(900)
def test_a_hundred_kills_in_a_row(tmp_path: Path):
    """The same, long."""
    check(tmp_path / "run", survive(tmp_path / "run", 100, seed=11), 100)


@pytest.mark.launch
def test_a_rank_killed_under_torchrun(tmp_path: Path):
    """Two ranks with a real process group; one is killed; three ranks resume and finish."""
    script = str(HERE / "torchrun_trainer.py")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    pid_file, deadline = tmp_path / "rank-1.pid", time.monotonic() + 120
    command = [*launcher, "--nproc-per-node=2", script, str(tmp_path), "kill"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
        while not pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        assert first.wait(60) != 0

    run = open_run(tmp_path / "run")
    assert run.verify().holds
    assert len(run.history) >= json.loads((tmp_path / "state.json").read_text())["step"] > 0

    done = subprocess.run([*launcher, "--nproc-per-node=3", script, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    run = open_run(tmp_path / "run")
    assert run.history["step"] == list(range(60))
    assert [a.launch.world_size for a in run.evidence.attempts.values()] == [2, 3]
    assert run.verify().holds
