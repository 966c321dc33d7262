"""Running worker processes, waited for together."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import select
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lading.identity.hashing import key64
from lading.loader.workers.child import WorkerTask
from lading.loader.workers.worker_process import WorkerProcess, end_all, starts_in_main_thread
from lading.runtime.processes import start_method

_CHECK_SECONDS = 5.0  # a wait looks around this often, should the system not have woken it
_UNSENT_SECONDS = 0.02
_PRELOADED = ("torch", "lading.loader.workers.child", "lading.loader.fetch", "lading.loader.torch.collate")
_SEEDS = 1 << 63  # torch takes seeds of 63 bits without overflowing


@dataclass(frozen=True)
class Settings:
    """What the workers of a loader have in common; see ``Workers``."""

    fetch: Callable[[Any], Any]
    num_workers: int
    seed: int
    context: Any
    prefetch_factor: int
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    dataset: Any


class Pool:
    """Running workers. They end with the last object that refers to the pool, and with this process."""

    def __init__(self, settings: Settings) -> None:
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
        """End all workers."""
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
    """Return the multiprocessing context asked for; by default fork, but forkserver where JAX runs threads.

    Args:
        context: A context, the name of a start method, or None.
    """
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


def _task(settings: Settings, number: int, context: Any) -> WorkerTask:
    is_our_child = context.get_start_method() in ("fork", "spawn")
    return WorkerTask(
        fetch=settings.fetch,
        dataset=settings.dataset,
        init=settings.worker_init_fn,
        number=number,
        num_workers=settings.num_workers,
        seed=((key64(settings.seed, "workers") >> 1) + number) % _SEEDS,
        parent=os.getpid(),
        dies_with_parent=is_our_child and sys.platform == "linux" and starts_in_main_thread(),
    )
