"""What runs in a worker process: read requests, fetch, write results into slots, until asked to stop.

    parent  ── frame: kind, generation, number, pickled request ──▶  worker
    parent  ◀── message: kind, generation, number, place (+ descriptor of a new slot) ──  worker

The worker reads everything that has arrived before each fetch, so that a stop
or a newer generation takes effect after at most one fetch. It ends when the
parent shuts the socket down, and when the parent dies.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lading.loader.failure import WorkerFailure
from lading.loader.workers import wire
from lading.loader.workers.slots import SlotPlace, SlotWriter
from lading.runtime.processes import die_with_parent, is_running
from lading.runtime.random_state import seed
from lading.source.columns import Memory

FRAME = struct.Struct("<qqqq")  # kind, generation, number, bytes that follow
MESSAGE = struct.Struct("<8q")  # kind, generation, number, place
REQUEST, CANCEL, FINISH = range(3)
RESULT, FAILURE = range(2)
_READ_BYTES = 1 << 18
_PARENT_CHECK_SECONDS = 2.0


@dataclass(frozen=True)
class Settings:
    """What is asked of workers.

    Attributes:
        fetch: Makes a result of a request. It is pickled for processes unless they are forked. Several threads call it
            at once: it must not draw from global random generators, which belong to all of them together.
        num_workers: How many.
        prefetch_factor: Requests that each worker has at a time.
        timeout: Seconds to wait for a result; 0: no limit.
        worker_init_fn: Called with the worker's number in each worker before its first request.
    """

    fetch: Callable[[Any], Any]
    num_workers: int
    prefetch_factor: int = 2
    timeout: float = 0.0
    worker_init_fn: Callable[[int], None] | None = None


@dataclass(frozen=True)
class ProcessSettings(Settings):
    """What is asked of worker processes.

    Attributes:
        seed: Seeds the global generators of each worker, together with its number.
        context: Start method or multiprocessing context; None: fork, or forkserver where JAX is loaded.
        dataset: What ``torch.utils.data.get_worker_info().dataset`` is in the workers.
        memory: Where ``fetch`` asks for large arrays: in the workers it lends shared memory, so that a result is sent
            without a copy. Nobody may hold such an array longer than its result.
    """

    seed: int = 0
    context: Any = None
    dataset: Any = None
    memory: Memory | None = None


@dataclass(frozen=True)
class WorkerTask:
    """What a worker is started with; the seed is its own."""

    settings: ProcessSettings
    number: int
    seed: int
    parent: int
    dies_with_parent: bool


class _Stopped(Exception):
    """The parent wants no more, or is gone."""


def work(link: socket.socket, task: WorkerTask) -> None:
    """Run a worker; the target of its process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and stops its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if task.dies_with_parent:
        die_with_parent(task.parent)
    with contextlib.suppress(_Stopped, BrokenPipeError, ConnectionResetError):
        _Worker(link, task).run()
    link.close()


class _Worker:
    def __init__(self, link: socket.socket, task: WorkerTask) -> None:
        self._task, settings = task, task.settings
        self._inbox = _Inbox(link, task.parent)
        self._link, self._slots = link, SlotWriter()
        if settings.memory is not None:
            settings.memory.lend = self._slots.lend
        self._broken: WorkerFailure | None = None
        self._where = f"worker {task.number} of {settings.num_workers}"

    def run(self) -> None:
        try:
            _prepare(self._task)
        except Exception as error:
            self._broken = WorkerFailure.of(error, f"{self._where} could not start (worker_init_fn)")
        while True:
            generation, number, request = self._inbox.next()
            kind, place, descriptor = self._answer(request)
            message = MESSAGE.pack(kind, generation, number, *place)
            if descriptor is None:
                self._link.sendall(message)
            else:
                socket.send_fds(self._link, [message], [descriptor])
                os.close(descriptor)

    def _answer(self, request: bytes) -> tuple[int, SlotPlace, int | None]:
        if self._broken is not None:
            return FAILURE, *self._slots.write(self._broken)
        try:
            result = self._task.settings.fetch(wire.unpack(request))
        except BaseException as error:
            return FAILURE, *self._slots.write(WorkerFailure.of(error, f"{self._where} could not fetch"))
        try:
            return RESULT, *self._slots.write(result)
        except Exception as error:
            return FAILURE, *self._slots.write(WorkerFailure.of(error, f"{self._where} could not send what it fetched"))


class _Inbox:
    """The requests that have arrived and are still wanted."""

    def __init__(self, link: socket.socket, parent: int) -> None:
        self._link, self._parent = link, parent
        self._bytes = bytearray()
        self._requests: deque[tuple[int, int, bytes]] = deque()
        self._finishes = False
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._parent_handle = _process_handle(parent)
        if self._parent_handle is not None:
            self._poll.register(self._parent_handle, select.POLLIN)

    def next(self) -> tuple[int, int, bytes]:
        """Return the next request that is wanted; wait for it."""
        self._read(wait=False)
        while not self._requests:
            if self._finishes:
                raise _Stopped
            self._read(wait=True)
        return self._requests.popleft()

    def _read(self, *, wait: bool) -> None:
        while ready := self._poll.poll(_PARENT_CHECK_SECONDS * 1000 if wait else 0):
            if all(descriptor == self._parent_handle for descriptor, _ in ready):
                raise _Stopped
            received = self._link.recv(_READ_BYTES)
            if not received:
                raise _Stopped
            self._bytes += received
            self._parse()
            wait = False
        if wait and self._parent_handle is None and not is_running(self._parent):
            raise _Stopped

    def _parse(self) -> None:
        while len(self._bytes) >= FRAME.size:
            kind, generation, number, size = FRAME.unpack_from(self._bytes)
            if len(self._bytes) < FRAME.size + size:
                return
            payload = bytes(self._bytes[FRAME.size : FRAME.size + size])
            del self._bytes[: FRAME.size + size]
            if kind == FINISH:
                self._finishes = True
            elif kind == CANCEL:
                self._requests.clear()
            else:
                self._requests.append((generation, number, payload))


def _prepare(task: WorkerTask) -> None:
    """Seed the generators; tell torch which worker this is; call the user's function."""
    seed(task.seed)
    settings = task.settings
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        module: Any = importlib.import_module("torch.utils.data._utils.worker")
        module._worker_info = module.WorkerInfo(
            id=task.number, num_workers=settings.num_workers, seed=task.seed, dataset=settings.dataset
        )
    if settings.worker_init_fn is not None:
        settings.worker_init_fn(task.number)


def _process_handle(process: int) -> int | None:
    """Return a descriptor that is readable once a process has died, where the system has such descriptors."""
    try:
        return os.pidfd_open(process)
    except AttributeError:
        return None
    except ProcessLookupError:
        raise _Stopped from None
    except OSError:
        return None
