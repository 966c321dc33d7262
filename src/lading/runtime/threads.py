"""Threads of ours: a process may fork while they run, they read ahead, they help with a piece of work.

Forks:

    thread   ── work ──│ between two pieces of work │── work ──
    fork                      here, and only here

A forked child inherits every lock as it is at that moment, and a lock held
by a thread that does not come along is never released. So our background
threads do each piece of their work inside ``Busy``, and a fork waits (a few
seconds at the most) until none of them is busy.

Read ahead (``ahead``): a few items are ready before they are asked for. The thread works on one item at a time and can
be paused between two of them.

Help (``helped_by``): compiled work that several threads can share is done by the caller and by threads that wait for
such work. Whoever shares it counts its pieces, so a helper that comes late finds nothing left and is not waited for.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lading.runtime.processes import at_fork, usable_cpus

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
    _helpers.clear()
    for busy in list(_threads):
        busy.lock = threading.RLock()


at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_forget)


T = TypeVar("T")
THREAD_NAME = "lading-ahead"


def ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """Yield the items of an iterator that a thread runs through; at most ``depth`` of them wait.

    Args:
        items: What to run through. An error it raises is raised here, in its place.
        depth: Items that may wait; 0: no thread.
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


class _Helper:
    """A thread that waits for work; it is never ended, and holds nothing of the work that is done."""

    def __init__(self) -> None:
        self._work: Callable[[], Any] | None = None
        self._idle = threading.Lock()
        self._idle.acquire()
        threading.Thread(target=self._run, name="lading-helper", daemon=True).start()

    def begin(self, work: Callable[[], Any]) -> None:
        """Have it do some work soon, if nothing else comes before."""
        self._work = work
        with contextlib.suppress(RuntimeError):  # it has not begun with what came before
            self._idle.release()

    def forget(self) -> None:
        """Have it do nothing more."""
        self._work = None

    def _run(self) -> None:
        while True:
            self._idle.acquire()
            work = self._work
            if work is not None:
                work()
            del work


_helpers: list[_Helper] = []  # of this process
_is_worker = False


def processors() -> int:
    """Return the processors that threads of this process may use; one where it is a worker among others."""
    return 1 if _is_worker else usable_cpus()


def stay_on_one_processor() -> None:
    """Say that this process is a worker among others."""
    global _is_worker
    _is_worker = True


@contextlib.contextmanager
def helped_by(count: int, work: Callable[[], Any]) -> Iterator[None]:
    """Have threads do some work too, while the block does it; they are not waited for.

    Args:
        count: How many threads.
        work: Does pieces of the work until none is left. It must release the interpreter's lock.
    """
    while len(_helpers) < count:
        _helpers.append(_Helper())
    chosen = _helpers[:count]
    for helper in chosen:
        helper.begin(work)
    try:
        yield
    finally:
        for helper in chosen:
            helper.forget()
