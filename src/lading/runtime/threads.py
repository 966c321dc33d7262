"""Threads of ours: a process may fork while they run, and they read ahead.

Forks:

    thread   ── work ──│ between two pieces of work │── work ──
    fork                      here, and only here

A forked child inherits every lock as it is at that moment, and a lock held
by a thread that does not come along is never released. So our background
threads do each piece of their work inside ``Busy``, and a fork waits (a few
seconds at the most) until none of them is busy.

Work in blocks (``each_in_threads``): as many at a time as there are cores, so that memory is bounded by the blocks.

Read ahead (``ahead``): a few items are ready before they are asked for. The thread works on one item at a time and can
be paused between two of them.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from typing import Any, TypeVar

from lading.runtime.processes import at_fork

_PATIENCE_SECONDS = 5.0
_PROCESS = os.getpid()


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def each_in_threads(work: Callable[[T], None], items: Iterable[T]) -> None:
    """Do something with each item, as many at a time as there are cores; worth it where the work lets others run."""
    if isinstance(items, Sized) and len(items) < 2:
        for item in items:
            work(item)
        return
    from concurrent.futures import ThreadPoolExecutor  # here: most processes have no such work

    with ThreadPoolExecutor(num_cores()) as pool:
        for _ in pool.map(work, items):
            pass


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


at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_forget)


def was_forked() -> bool:
    """Say whether this process was forked off: other libraries' threads (OpenMP's) are then waited for in vain."""
    return os.getpid() != _PROCESS


T = TypeVar("T")
THREAD_NAME = "lading-ahead"


def ahead(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the items of an iterator that a thread runs through; at most ``depth`` of them wait (0: no thread).

    An error that the iterator raises is raised here, in its place.
    """
    if depth <= 0:
        yield from items
        return
    ready: queue.Queue[Any] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_run, args=(items, ready, stopped), name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
    finally:
        stopped.set()
        thread.join()


def _run(items: Iterator[T], ready: queue.Queue[Any], stopped: threading.Event) -> None:
    busy, end = Busy(), object()

    def put(kind: str, value: Any) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put((kind, value), timeout=0.1)
                return

    try:
        while not stopped.is_set():
            with busy:
                item = next(items, end)
            if item is end:
                put("end", None)
                return
            put("item", item)
    except BaseException as error:
        put("error", error)
