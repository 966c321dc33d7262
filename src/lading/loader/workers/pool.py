"""Worker processes as their parent sees them: start them, send to them, receive from them, wait for all, end them.

Nothing waits for a single worker: sending keeps what does not fit into the socket, receiving returns what is there.
``processes`` knows of order and requests, but not of sockets and signals.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import pickle
import select
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lading.errors import LoaderError
from lading.identity.hashing import key64
from lading.loader.workers.child import FRAME, MESSAGE, ProcessSettings, WorkerTask, work
from lading.loader.workers.slots import SlotPlace, SlotReader
from lading.runtime.processes import at_fork, start_method

GRACE_SECONDS = 5.0  # for the fetch that is under way when a worker is stopped; then it is killed
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class WorkerProcess:
    """A worker process and the socket to it."""

    def __init__(self, context: Any, task: WorkerTask) -> None:
        if not hasattr(socket, "send_fds"):
            raise LoaderError(
                "worker processes hand over memory through sockets, and this system's sockets cannot. Pass "
                "workers='threads', or num_workers=0."
            )
        self.number, self.slots = task.number, SlotReader()
        self.link, theirs = socket.socketpair()
        self.link.setblocking(False)
        self._unsent = bytearray()
        self._owner = os.getpid()
        _links.add(self.link)
        self._process = context.Process(
            target=work, args=(theirs, task), name=f"lading-worker-{task.number}", daemon=True
        )
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self.link.close()
            raise LoaderError(
                f"the work of a worker cannot be sent to a new process: {error}. Define datasets and functions at the "
                "top level of a module, or pass multiprocessing_context='fork'."
            ) from error
        except BaseException:
            self.link.close()
            raise
        finally:
            theirs.close()
        self.pid: int = self._process.pid
        self.handle, self._has_own_handle = _death_handle(self._process)

    def send(self, kind: int, generation: int = 0, number: int = 0, payload: bytes = b"") -> None:
        """Send a frame, now or as soon as there is room for it."""
        self._unsent += FRAME.pack(kind, generation, number, len(payload))
        self._unsent += payload
        self.flush()

    def flush(self) -> bool:
        """Send what is left; return whether nothing is."""
        try:
            while self._unsent:
                del self._unsent[: self.link.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent.clear()  # the worker is dead; whoever waits for it finds out
        return True

    def receive(self) -> tuple[int, int, int, SlotPlace] | None:
        """Return the next message, None if there is none yet.

        Raises:
            EOFError: If the worker has ended.
        """
        try:
            message, descriptors, _, _ = socket.recv_fds(self.link, MESSAGE.size, 1, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            message, descriptors = b"", []
        if len(message) < MESSAGE.size:
            raise EOFError
        kind, generation, number, *numbers = MESSAGE.unpack(message)
        place = SlotPlace(*numbers)
        self.slots.adopt(place, descriptors[0] if descriptors else None)
        return kind, generation, number, place

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        code: int | None = self._process.exitcode
        return code

    def last_exit_code(self) -> int | None:
        """Return the exit code of a process that is about to end: a forkserver reports it a moment later."""
        self._wait(time.monotonic() + 1.0)
        return self.exit_code

    def how_it_died(self) -> str:
        """Say in words how the process ended."""
        code, who = self.last_exit_code(), f"worker {self.number} (process {self.pid})"
        if code is None:
            return f"{who} closed its connection"
        if code >= 0:
            return f"{who} exited with code {code}"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        out_of_memory = ", as the system does when memory runs out" if -code == signal.SIGKILL else ""
        return f"{who} was killed by {name}{out_of_memory}"

    def stop(self) -> None:
        """Ask the process to end after the fetch under way."""
        if self._owner == os.getpid():
            with contextlib.suppress(OSError):
                self.link.shutdown(socket.SHUT_RDWR)  # reaches it whatever other process has inherited our end

    def end(self, deadline: float) -> None:
        """Wait for the process to end until a time, then kill it; close everything."""
        if self._owner != os.getpid():
            return
        for force in (None, self._process.terminate, self._process.kill):
            if force is not None:
                force()
                deadline = time.monotonic() + 1.0
            if self._wait(deadline):
                break
        self.link.close()
        self.slots.close()
        if self._has_own_handle:
            os.close(self.handle)
        with contextlib.suppress(ValueError):  # it cannot be killed: stuck in the kernel
            self._process.close()

    def _wait(self, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        while self.exit_code is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            poll.poll(max(1, min(left, 0.5) * 1000))
        return True


def end_all(workers: Sequence[WorkerProcess]) -> None:
    """Stop some workers together, and wait for them."""
    for worker in workers:
        worker.stop()
    deadline = time.monotonic() + GRACE_SECONDS
    for worker in workers:
        worker.end(deadline)


def _death_handle(process: Any) -> tuple[int, bool]:
    """Return a descriptor that is readable once a process has ended, and whether it is ours to close."""
    try:
        return os.pidfd_open(process.pid), True
    except (AttributeError, OSError):
        return process.sentinel, False


# Our ends of all sockets. A forked child closes its copies, so that a worker sees the end of a parent that was killed.
_links: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_inherited() -> None:
    for link in list(_links):
        link.close()
    _links.clear()


at_fork(after_in_child=_close_inherited)


_CHECK_SECONDS = 5.0  # a wait looks around this often, should the system not have woken it
_UNSENT_SECONDS = 0.02
_PRELOADED = ("torch", "lading.loader.workers.child", "lading.loader.fetch", "lading.loader.torch.collate")
_SEEDS = 1 << 63  # torch takes seeds of 63 bits without overflowing


class Pool:
    """Running workers. They end with the last object that refers to the pool, and with this process."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.settings, self.generation, self._owner = settings, 0, os.getpid()
        self.workers: list[WorkerProcess] = []
        self._finalizer = weakref.finalize(self, end_all, self.workers)
        context = chosen_context(settings.context)
        try:
            for number in range(settings.num_workers):
                self.workers.append(WorkerProcess(context, _task(settings, number, context)))
        except BaseException:
            self.end()
            raise
        self._polls = [self._poll(worker) for worker in self.workers]

    def _poll(self, awaited: WorkerProcess) -> select.poll:
        """Return what wakes up for a message of one worker and for the death of any."""
        poll = select.poll()
        poll.register(awaited.link, select.POLLIN)
        for worker in self.workers:
            poll.register(worker.handle, select.POLLIN)
        return poll

    @property
    def is_ours(self) -> bool:
        """Whether this process started the workers, not one that it was forked from."""
        return self._owner == os.getpid()

    def is_usable(self) -> bool:
        """Say whether all workers are alive and this process's own."""
        return self._finalizer.alive and self.is_ours and all(worker.exit_code is None for worker in self.workers)

    def end(self) -> None:
        self._finalizer()

    def wait(self, worker: WorkerProcess, seconds: float) -> WorkerProcess | None:
        """Wait for a message of a worker, for some time at the most; return the worker that died meanwhile, if any."""
        unsent = [other for other in self.workers if not other.flush()]
        seconds = min(seconds, _UNSENT_SECONDS if unsent else _CHECK_SECONDS)
        ready = {descriptor for descriptor, _ in self._polls[worker.number].poll(max(0.0, seconds) * 1000)}
        if worker.link.fileno() in ready:
            return None
        for other in self.workers:
            if other.handle not in ready:
                continue
            if other is worker or other.last_exit_code() != 0:
                return other
            for poll in self._polls:  # it has answered everything, and its answers are still there
                poll.unregister(other.handle)
        return None


def chosen_context(context: Any) -> Any:
    """Return the multiprocessing context asked for; by default fork, but forkserver where JAX runs threads."""
    if context is None:
        context = start_method()
    if isinstance(context, str):
        context = multiprocessing.get_context(context)
    if context.get_start_method() == "forkserver":
        _preload(context)
    return context


def _preload(context: Any) -> None:
    """Have the fork server import once what every worker needs, unless the user has chosen what it imports."""
    server = getattr(forkserver, "_forkserver", None)
    if getattr(server, "_preload_modules", None) == ["__main__"]:
        needed = [name for name in _PRELOADED if name in sys.modules]
        context.set_forkserver_preload(["__main__", *needed])


def _task(settings: ProcessSettings, number: int, context: Any) -> WorkerTask:
    is_our_child = sys.platform == "linux" and context.get_start_method() in ("fork", "spawn")
    in_main_thread = threading.current_thread() is threading.main_thread()  # else its end would be the worker's, too
    return WorkerTask(
        replace(settings, context=None),  # which no worker needs, and which need not be one that can be sent
        number,
        seed=((key64(settings.seed, "workers") >> 1) + number) % _SEEDS,
        parent=os.getpid(),
        dies_with_parent=is_our_child and in_main_thread,
    )
