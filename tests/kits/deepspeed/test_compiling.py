"""A wait for torch's compiler has a name; a lock of a dead compiler is removed by ``make setup``."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time

import pytest
from benchmarks import warm_up

from lading.kits.deepspeed.compiling import waiting_is_named


def test_a_long_wait_names_the_lock(tmp_path, monkeypatch, caplog):
    """It hung for ever, in silence."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "deepspeed_shm_comm").mkdir()
    lock = tmp_path / "deepspeed_shm_comm" / "lock"
    lock.touch()

    with caplog.at_level(logging.WARNING), waiting_is_named(0.01):
        end = time.monotonic() + 60
        while str(lock) not in caplog.text and time.monotonic() < end:
            time.sleep(0.01)

    assert f"DeepSpeed waits for {lock}" in caplog.text and "remove the file" in caplog.text


def test_a_short_wait_says_nothing(tmp_path, monkeypatch, caplog):
    """As a rule nothing is compiled."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "lock").touch()

    with waiting_is_named(0.05):
        pass

    time.sleep(0.1)
    assert not caplog.text


HOLD = """
import sys, time
from torch.utils.file_baton import FileBaton
FileBaton(sys.argv[1]).try_acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_only_the_lock_of_a_dead_compiler_is_abandoned(tmp_path):
    """torch's own lock, held by a process that lives, then by one that was killed in the middle."""
    lock = tmp_path / "deepspeed_shm_comm" / "lock"
    lock.parent.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout.readline() == "held\n"
        alive = warm_up.abandoned_locks(tmp_path)
        holder.kill()
    dead = warm_up.abandoned_locks(tmp_path)

    assert (alive, dead) == ([], [lock])


def test_compilers_that_outlived_the_one_that_started_them_are_ended(tmp_path):
    """Killed in the middle, ``make setup`` left two that wrote into the folder of the second start."""
    folder = tmp_path / "deepspeed_shm_comm"
    folder.mkdir()
    waiting = ["sleep", "600"]
    with subprocess.Popen(waiting, cwd=folder) as compiler, subprocess.Popen(waiting, cwd=tmp_path) as neighbour:
        warm_up.end_orphans(folder)

        assert compiler.wait(60) == -signal.SIGTERM and neighbour.poll() is None
        neighbour.kill()


def test_a_compile_that_does_not_end_is_a_sentence(tmp_path, monkeypatch):
    """``make setup`` says what it waited for, and how to go on."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setattr(warm_up, "DEEPSPEED", "import time; time.sleep(600)")
    monkeypatch.setattr(warm_up, "MOST_SECONDS", 1)

    with pytest.raises(SystemExit, match=r"did not start within 1 s.*find .* -name lock.*make setup"):
        warm_up.compile_deepspeed()
