"""Locks: one process at a time, a dead one's is taken over, and the same where the system has none."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from lading.runtime import files
from lading.runtime.files import alone, try_lock
from lading.runtime.processes import process_identity


@pytest.fixture(params=["flock", "a file"])
def kind(request, monkeypatch):
    """With the system's locks, and without them."""
    if request.param == "a file":
        monkeypatch.setattr(files, "fcntl", None)
    return request.param


def test_one_holds_a_folder_at_a_time(tmp_path, kind):
    """The second is told so; afterwards it is free again, and nothing is left."""
    with alone(tmp_path) as first:
        with alone(tmp_path) as second:
            assert (first, second) == (True, False)

    with alone(tmp_path) as again:
        assert again
    assert not list(tmp_path.iterdir())


def test_a_process_that_was_killed_holds_nothing(tmp_path, monkeypatch):
    """The mark names its process; one that is dead, or has another's number now, is taken over."""
    monkeypatch.setattr(files, "fcntl", None)
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    dead = process_identity(child.pid)
    child.wait()
    for pid, started in (dead, (os.getpid(), 1)):
        (tmp_path / ".lock").write_text(f"{pid} {started}")

        with alone(tmp_path) as ours:
            assert ours


def test_a_mark_without_a_name_is_believed_for_a_minute(tmp_path, monkeypatch):
    """Another process may be about to write its name; if it died meanwhile, nobody waits for ever."""
    monkeypatch.setattr(files, "fcntl", None)
    mark = tmp_path / ".lock"
    mark.touch()
    with alone(tmp_path) as ours:
        assert not ours

    os.utime(mark, (time.time() - 120,) * 2)

    with alone(tmp_path) as ours:
        assert ours


def test_without_locks_nothing_is_locked(tmp_path, monkeypatch):
    """Those who ask learn that nobody can know."""
    with open(tmp_path / "a", "w") as one, open(tmp_path / "a") as other:
        assert (try_lock(one.fileno()), try_lock(other.fileno())) == (True, False)
        monkeypatch.setattr(files, "fcntl", None)
        assert try_lock(other.fileno()) is None
