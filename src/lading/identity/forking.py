"""Let a process fork while our threads run.

    thread   ── work ──│ between two pieces of work │── work ──
    fork                      here, and only here

A forked child inherits every lock as it stands at that moment, and a lock held
by a thread that does not come along is never released. So our background
threads do each piece of their work inside ``Busy``, and a fork waits (a few
seconds at the most) until none of them is busy.
"""

from __future__ import annotations

import os
import threading
import weakref

_PATIENCE_SECONDS = 5.0


class Busy:
    """What a background thread holds while it must not be copied by a fork."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _threads.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.lock.release()


# Forks belong to the whole process, and so does this list of those who must be waited for.
_threads: weakref.WeakSet[Busy] = weakref.WeakSet()
_paused: list[Busy] = []


def _pause() -> None:
    _paused.extend(busy for busy in list(_threads) if busy.lock.acquire(timeout=_PATIENCE_SECONDS))


def _go_on() -> None:
    while _paused:
        _paused.pop().lock.release()


def _forget() -> None:
    """In the child the threads are gone; so is what they held."""
    _paused.clear()
    for busy in list(_threads):
        busy.lock = threading.RLock()


os.register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_forget)
