"""Start real processes: torchrun ranks, and kill them for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def torchrun(
    script: Path, ranks: int, *args: Any, check: bool = True, timeout: float = 3000
) -> subprocess.CompletedProcess:
    """Run a script on several ranks; a rank that fails fails the test with its output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(script)]
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")}
    done = subprocess.run([*command, *map(str, args)], capture_output=True, text=True, timeout=timeout, env=env)
    if check and done.returncode:
        raise AssertionError(f"{script.name} on {ranks} ranks failed:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
    return done


def kill_all(pids: list[int]) -> None:
    """``kill -9`` every process of a list."""
    for pid in pids:
        with_pid_gone(pid)


def with_pid_gone(pid: int) -> None:
    """``kill -9`` one process; it may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def read_jsonl(path: Path) -> list[Any]:
    """Return the complete lines of a JSON-lines file."""
    lines = path.read_text().split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def wait_for(path: Path, timeout: float = 3000) -> None:
    """Wait until a file exists."""
    end = time.monotonic() + timeout
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear in {timeout} s"
        time.sleep(0.02)


def wait_until(condition: Callable[[], bool], seconds: float = 600.0) -> bool:
    """Wait for something to become true; return whether it did."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()
