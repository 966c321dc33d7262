"""Processes and threads: whether another process runs, children that do not outlive their parent, work beside the work.

A process may fork while threads of ours run:

    thread   ── work ──│ between two pieces of work │── work ──
    fork                      here, and only here

A forked child inherits every lock as it is at that moment, and a lock held
by a thread that does not come along is never released. So our background
threads do each piece of their work inside ``Busy``, and a fork waits (a few
seconds at the most) until none of them is busy.

``each_in_threads`` works on as many blocks at a time as there are cores, so memory is bounded by the blocks. ``ahead``
has a few items ready before they are asked for; its thread can be paused between two of them. ``helper`` is one thread
for the half of something that its caller waits for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import queue
import shlex
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_PR_SET_PDEATHSIG = 1
_SYNCHRONIZE, _STILL_RUNNING = 0x100000, 258  # of Windows


def process_identity(pid: int) -> tuple[int, int]:
    """Return a process's id and start time: together they are never used again. 0 where it ended or is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (pid, 0) if fields[0] in "ZX" else (pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return pid, 0


def command_line(pid: int, started: int) -> str | None:
    """Return what a process was started with; None where it ended, is another one, or no one says it."""
    if not started or process_identity(pid) != (pid, started):
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    return shlex.join(word.decode(errors="replace") for word in words) or None


def is_running(pid: int, started: int = 0) -> bool:
    """Say whether a process runs; with its start time (``process_identity`` says it), whether it is the same one."""
    found = process_identity(pid)[1]
    if found or Path("/proc/self/stat").exists():
        return found != 0 and started in (0, found)
    if os.name == "nt":
        return _windows_has(pid)
    try:
        os.kill(pid, 0)  # no /proc: only the number is known
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _windows_has(pid: int) -> bool:
    """Ask for a handle of the process: there a signal 0 is Ctrl-C."""
    kernel = vars(ctypes)["windll"].kernel32
    handle = kernel.OpenProcess(_SYNCHRONIZE, 0, pid)
    running = bool(handle) and kernel.WaitForSingleObject(handle, 0) == _STILL_RUNNING
    kernel.CloseHandle(handle)
    return running


def at_fork(**calls: Callable[[], Any]) -> None:
    """``os.register_at_fork``, where processes fork at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, whatever it is doing; end here where that is gone."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def start_method() -> str:
    """Return how worker processes start: the user's choice, else fork, but forkserver where JAX runs threads."""
    import multiprocessing  # here: those who only ask whether a process runs need none of it

    method = multiprocessing.get_start_method(allow_none=True) or "fork"
    if method not in multiprocessing.get_all_start_methods():
        method = "spawn"
    return "forkserver" if method == "fork" and "jax" in sys.modules else method


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables of the environment inside the block; put them back after it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def usable_cpus() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


_PATIENCE_SECONDS = 5.0


def each_in_threads(work: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Do something with each item, as many at a time as there are cores; worth it where the work lets others run."""
    if isinstance(items, Sized) and len(items) < 2:
        return list(map(work, items))
    from concurrent.futures import ThreadPoolExecutor  # here: most processes have no such work

    with ThreadPoolExecutor(usable_cpus()) as pool:
        return list(pool.map(work, items))


@functools.cache
def helper() -> ThreadPoolExecutor:
    """Return a thread for short work beside the caller's own; a forked process has another."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, "lading-helper")


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
at_fork(after_in_child=helper.cache_clear)


T = TypeVar("T")
U = TypeVar("U")
THREAD_NAME = "lading-ahead"


def ahead(items: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the items of an iterator that a thread runs through; at most ``depth`` of them wait (0: no thread).

    An error that the iterator raises is raised here, in its place.
    """
    if depth <= 0:
        yield from items
        return
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    places: queue.SimpleQueue[None] = queue.SimpleQueue()  # for an item each: those that wait, and one in the making
    stopped = threading.Event()
    for _ in range(depth + 1):
        places.put(None)
    thread = threading.Thread(target=_run, args=(items, ready, places, stopped), name=THREAD_NAME, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "error":
                raise value
            if kind == "end":
                return
            places.put(None)
            yield value
    finally:
        stopped.set()
        places.put(None)
        thread.join()


def _run(
    items: Iterator[T], ready: queue.SimpleQueue[Any], places: queue.SimpleQueue[None], stopped: threading.Event
) -> None:
    busy, end = Busy(), object()
    try:
        while True:
            places.get()
            if stopped.is_set():
                return
            with busy:
                item = next(items, end)
            if item is end:
                ready.put(("end", None))
                return
            ready.put(("item", item))
            del item  # nothing may be held longer than by its user
    except BaseException as error:
        ready.put(("error", error))
