"""A process forks between two pieces of a thread's work, never inside one."""

from __future__ import annotations

import os
import threading
import time

from lading.runtime import processes
from lading.runtime.processes import Busy


def test_a_fork_waits_until_the_thread_is_between_two_pieces_of_work(monkeypatch):
    """Each child sees the thread's two counters equal: it never catches a piece of work half done."""
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 600)  # at load 30 this greedy thread starved a fork for 5 s
    busy, counts, stop = Busy(), [0, 0], threading.Event()

    def work():
        while not stop.is_set():
            with busy:
                counts[0] += 1
                time.sleep(0.002)
                counts[1] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        codes = []
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0 if counts[0] == counts[1] and busy.lock.acquire(timeout=1) else 1)
            codes.append(os.waitpid(child, 0)[1])
        before, ends = counts[0], time.monotonic() + 600
        while counts[0] <= before and time.monotonic() < ends:
            time.sleep(0.002)
        after = counts[0]
    finally:
        stop.set()
        thread.join()

    assert codes == [0] * 20
    assert after > before, "the thread continues after the forks"


def test_a_thread_may_fork_from_inside_its_own_work(monkeypatch):
    """It does not wait for itself."""
    monkeypatch.setattr(processes, "_PATIENCE_SECONDS", 90.0)
    with Busy():
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    assert time.monotonic() - start < 60
