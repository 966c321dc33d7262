"""Living and dead processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lading.runtime import processes
from lading.runtime.processes import is_running, process_identity


def test_the_living_run_and_the_dead_do_not():
    """Also one whose parent has not asked for it yet."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    pid, started = process_identity(child.pid)
    alive = is_running(pid), is_running(pid, started), is_running(pid, started + 1)
    child.kill()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    zombie = is_running(pid)
    child.wait()

    assert started > 0 and alive == (True, True, False)
    assert not zombie and not is_running(pid) and not is_running(pid, started)


def test_without_proc_the_number_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    """Other systems have no such files."""
    monkeypatch.setattr(processes, "Path", lambda name: Path("/nowhere") / name.lstrip("/"))

    assert is_running(os.getpid()) and not is_running(2**22 + 1)
