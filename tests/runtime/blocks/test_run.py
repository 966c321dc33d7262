"""One block function, any executor: in this process, in local processes, in numbered tasks."""

from __future__ import annotations

import os
import signal
import time

import pytest

from lading.errors import ConfigError, SourceError, WorkerError
from lading.runtime.blocks import run as blocks
from lading.runtime.blocks.run import Task, run_blocks
from lading.runtime.processes import is_running


@pytest.fixture(autouse=True)
def forked(monkeypatch):
    """Functions of a test cannot be sent, only inherited, whatever else is loaded."""
    monkeypatch.setattr(blocks, "start_method", lambda: "fork")


def test_what_cannot_be_sent_is_refused(monkeypatch):
    """Where processes are not forked, a function must be one that pickle takes."""
    monkeypatch.setattr(blocks, "start_method", lambda: "forkserver")

    with pytest.raises(ConfigError, match=r"cannot be sent to worker processes .* or use one worker"):
        list(run_blocks(lambda number: number, range(4), workers=2))


@pytest.mark.parametrize("workers", [1, 3])
def test_every_block_is_done_once(workers):
    """Whoever does it, and in whatever order."""
    found = dict(run_blocks(lambda number: (number * number, os.getpid()), range(20), workers=workers))

    assert {number: square for number, (square, _) in found.items()} == {n: n * n for n in range(20)}
    assert (os.getpid() in {process for _, process in found.values()}) == (workers == 1)


def test_an_error_of_a_block_is_raised_here():
    """As it is, with its sentence."""

    def fail(number):
        if number == 5:
            raise SourceError("block 5 is no good")
        return number

    with pytest.raises(SourceError, match="block 5 is no good"):
        list(run_blocks(fail, range(10), workers=2))


def test_a_worker_that_dies_is_said_so():
    """Not waited for, and not silently left out."""

    def die(number):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError, match=r"a worker process died .* Finished blocks are kept"):
        list(run_blocks(die, range(4), workers=2))


def test_workers_die_with_a_killed_parent(tmp_path):
    """Nobody is left who writes to a folder that the next build uses."""

    def note(number):
        (tmp_path / f"{os.getpid()}").touch()
        time.sleep(60)

    child = os.fork()
    if child == 0:
        try:
            list(run_blocks(note, range(4), workers=2))
        finally:
            os._exit(1)
    while len(list(tmp_path.iterdir())) < 2 and is_running(child):
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    until = time.monotonic() + 600
    while any(map(is_running, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(is_running, workers))


def test_tasks_share_all_blocks():
    """Each block belongs to one task, however many there are."""
    shares = [Task.parse(f"{i}/4").share(range(11)) for i in range(4)]

    assert sorted(n for share in shares for n in share) == list(range(11)) and shares[3] == [3, 7]
    for text in ("4/4", "1", "-1/4", "a/b", "0/0"):
        with pytest.raises(ConfigError, match=r"expected I/N"):
            Task.parse(text)


def test_wrong_use_is_refused():
    """An executor that does not exist, and no worker at all."""
    with pytest.raises(ConfigError, match="on='spark' is unknown: expected one of 'local', 'ray'"):
        run_blocks(str, range(2), on="spark")
    with pytest.raises(ConfigError, match="workers=0: expected at least 1"):
        run_blocks(str, range(2), workers=0)


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    """The extra is named."""
    monkeypatch.setitem(__import__("sys").modules, "ray", None)

    with pytest.raises(ImportError, match=r"building on Ray needs ray, .*: pip install 'lading\[ray\]'"):
        list(run_blocks(str, range(2), on="ray"))
