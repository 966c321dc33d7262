"""Worker processes: requests go out in turn, results come back in order, through shared memory.

    requests ─▶ worker 0, 1, 2, 0, 1, ... (prefetch_factor each) ─▶ results in the order of the requests

``run`` starts the processes and sends the first requests at once. A worker that
dies is named at once. An error of ``fetch`` is raised in the place of its
result; the next call returns the next result. What threads do as well, one
iteration over requests, is in ``OrderedRun``.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

from lading.errors import LoaderError, WorkerError
from lading.loader.workers import wire
from lading.loader.workers.child import CANCEL, FAILURE, FINISH, REQUEST, ProcessSettings, Settings
from lading.loader.workers.pool import Pool, WorkerProcess
from lading.loader.workers.slots import SlotPlace

R = TypeVar("R")


class OrderedRun(Generator[tuple[R, Any], None, None], Generic[R]):
    """Yield (request, result) in the order of the requests.

    Unlike a generator function's, the iteration survives an error of ``fetch``.

    Args:
        requests: Read ahead, one for each result taken.
    """

    def __init__(self, requests: Iterator[R]) -> None:
        self._requests: Iterator[R] | None = requests
        self._error: BaseException | None = None

    def send(self, value: Any) -> tuple[R, Any]:
        """Return the next pair; an iteration takes no values."""
        return next(self)

    def throw(self, *error: Any) -> Any:
        """End the iteration and raise an error."""
        self.close()
        raise error[0]

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _next_request(self, prepare: Callable[[R], Any]) -> tuple[R, Any] | None:
        """Return the next request and what ``prepare`` makes of it; None: there is none.

        An error is kept, to be raised in its place: after the results of the requests before it.
        """
        if self._requests is None:
            return None
        try:
            request = next(self._requests)
            return request, prepare(request)
        except Exception as error:
            if not isinstance(error, StopIteration):
                self._error = error
            self._requests = None
            return None

    def _finish(self) -> None:
        """End the iteration after the last result; raise the error that ended it, if there is one."""
        error, self._error = self._error, None
        self.close()
        if error is not None:
            raise error


class AnyWorkers(ABC):
    """Workers and their iterations. Sent to another process they begin without either."""

    def __init__(self, settings: Settings) -> None:
        if settings.num_workers < 1 or settings.prefetch_factor < 1 or settings.timeout < 0:
            raise LoaderError(
                f"found num_workers={settings.num_workers}, prefetch_factor={settings.prefetch_factor}, "
                f"timeout={settings.timeout}: expected at least 1 worker, at least 1 batch each, and a timeout of 0 "
                "(no limit) or more seconds."
            )
        self._runs: weakref.WeakSet[OrderedRun[Any]] = weakref.WeakSet()

    def run(self, requests: Iterator[R]) -> Generator[tuple[R, Any], None, None]:
        """Start fetching now; iterate over (request, result) in order.

        Args:
            requests: Read ahead by at most ``num_workers * prefetch_factor``.
        """
        run = self._started(requests)
        self._runs.add(run)
        return run

    @abstractmethod
    def _started(self, requests: Iterator[R]) -> OrderedRun[R]:
        """Start an iteration."""

    def close(self) -> None:
        """End all workers and iterations."""
        for run in list(self._runs):
            run.close()


class Workers(AnyWorkers):
    """Processes that fetch ahead and return results in order.

    Args:
        persistent: Whether the processes are kept for the next ``run``.
    """

    def __init__(self, settings: ProcessSettings, *, persistent: bool = False) -> None:
        super().__init__(settings)
        self._settings, self._persistent = settings, persistent
        self._pool: Pool | None = None

    def _started(self, requests: Iterator[R]) -> OrderedRun[R]:
        if not self._persistent:
            return WorkerRun(Pool(self._settings), requests, keeps_pool=False)
        if self._pool is None or not self._pool.is_usable():
            self.close()
            self._pool = Pool(self._settings)
        return WorkerRun(self._pool, requests, keeps_pool=True)

    def close(self) -> None:
        super().close()
        if self._pool is not None:
            self._pool.end()
            self._pool = None

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Workers, persistent=self._persistent), (self._settings,)


class WorkerRun(OrderedRun[R]):
    """One iteration over requests; ends its workers unless they are kept."""

    def __init__(self, pool: Pool, requests: Iterator[R], *, keeps_pool: bool) -> None:
        super().__init__(requests)
        pool.generation += 1
        self._pool: Pool | None = pool
        self._generation, self._keeps_pool = pool.generation, keeps_pool
        self._sent: deque[R] = deque()
        self._num_sent = self._num_received = 0
        self._death = ""
        for _ in range(pool.settings.num_workers * pool.settings.prefetch_factor):
            self._request_next()

    def __next__(self) -> tuple[R, Any]:
        pool = self._pool
        if pool is None or not self._sent:
            self._finish()
            raise StopIteration
        self._check(pool)
        worker = pool.workers[self._num_received % len(pool.workers)]
        kind, place = self._receive(pool, worker)
        self._num_received += 1
        request = self._sent.popleft()
        self._request_next()
        result = worker.slots.read(place)
        if kind == FAILURE:
            raise result.error()
        return request, result

    def close(self) -> None:
        """End the iteration; its workers too, unless they are kept."""
        pool, self._pool, self._requests = self._pool, None, None
        self._sent.clear()
        if pool is None or not pool.is_ours:
            return
        if not self._keeps_pool:
            pool.end()
        elif pool.generation == self._generation:
            for worker in pool.workers:
                worker.send(CANCEL)

    def _check(self, pool: Pool) -> None:
        if not pool.is_ours:
            raise LoaderError(
                "this iteration was started in another process, which has its workers. Iterate there, or start "
                "an iteration of your own in this process."
            )
        if pool.generation != self._generation:
            raise LoaderError(
                "a newer iteration has taken over the persistent workers of this one. Finish one iteration before "
                "the next begins, or pass persistent_workers=False, so that each has workers of its own."
            )

    def _finish(self) -> None:
        if self._death:
            self._error = WorkerError(self._death)
        super()._finish()

    def _break(self, dead: WorkerProcess) -> WorkerError:
        """End the iteration because of a dead worker; every further call raises the same error."""
        self._death = (
            f"{dead.how_it_died()} before its batch was fetched. What it wrote to the console says more; "
            "num_workers=0 runs the same work in this process, where a debugger sees it."
        )
        pool = self._pool
        self.close()
        if pool is not None:
            pool.end()
        return WorkerError(self._death)

    def _receive(self, pool: Pool, worker: WorkerProcess) -> tuple[int, SlotPlace]:
        """Wait for the next result."""
        timeout = pool.settings.timeout
        deadline = time.monotonic() + timeout if timeout else float("inf")
        dead: WorkerProcess | None = None
        while True:
            try:
                message = worker.receive()
            except EOFError:
                raise self._break(worker) from None
            if message is not None:
                kind, generation, number, place = message
                if (generation, number) == (self._generation, self._num_received):
                    return kind, place
                worker.slots.drop(place)  # of an iteration that was broken off
                continue
            if dead is not None:  # and what it sent before it died has been read
                raise self._break(dead)
            left = deadline - time.monotonic()
            if left <= 0:
                raise WorkerError(
                    f"worker {worker.number} (process {worker.pid}) did not fetch its batch within "
                    f"timeout={timeout:g} seconds. Raise the timeout, or look for what the dataset waits for."
                )
            dead = pool.wait(worker, left)

    def _request_next(self) -> None:
        """Send the next request to the worker whose turn it is."""
        pool = self._pool
        if self._requests is None or pool is None:
            return
        taken = self._next_request(wire.pack_whole)
        if taken is None:
            if not self._keeps_pool:
                for worker in pool.workers:
                    worker.send(FINISH)
            return
        request, packed = taken
        pool.workers[self._num_sent % len(pool.workers)].send(REQUEST, self._generation, self._num_sent, packed)
        self._sent.append(request)
        self._num_sent += 1
