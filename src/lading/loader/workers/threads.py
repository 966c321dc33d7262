"""Worker threads: the same interface and order as worker processes, without processes.

For sources that release the interpreter's lock while they read or decode:
nothing is pickled or copied. A fork waits until no thread is in the middle of a
fetch (``runtime.processes``).
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from lading.errors import LadingError, WorkerError
from lading.loader.failure import also
from lading.loader.workers.child import Settings
from lading.loader.workers.processes import AnyWorkers, OrderedRun
from lading.runtime.processes import Busy

R = TypeVar("R")
THREAD_NAME = "lading-worker"


class ThreadWorkers(AnyWorkers):
    """Threads that fetch ahead and return results in order."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._settings = settings

    def _started(self, requests: Iterator[R]) -> OrderedRun[R]:
        return ThreadRun(requests, self._settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return ThreadWorkers, (self._settings,)


class _Threads:
    """Running threads and the jobs they take."""

    def __init__(self, settings: Settings) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Any] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs, settings, k), name=f"{THREAD_NAME}-{k}", daemon=True)
            for k in range(settings.num_workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, request))
        return future

    def end(self) -> None:
        """End the threads after the fetches under way."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()


def _work(jobs: queue.SimpleQueue[tuple[Future[Any], Any] | None], settings: Settings, number: int) -> None:
    busy, broken = Busy(), None
    try:
        if settings.worker_init_fn is not None:
            with busy:
                settings.worker_init_fn(number)
    except Exception as error:
        broken = error
    while (job := jobs.get()) is not None:
        future, request = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            if broken is not None:
                raise broken
            with busy:
                result = settings.fetch(request)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
            del result
        del job, future, request  # nothing may be held longer than by its user


class ThreadRun(OrderedRun[R]):
    """One iteration over requests; ends its threads."""

    def __init__(self, requests: Iterator[R], settings: Settings) -> None:
        super().__init__(requests)
        self._threads: _Threads | None = _Threads(settings)
        self._timeout = settings.timeout or None
        self._sent: deque[tuple[R, Future[Any]]] = deque()
        for _ in range(settings.num_workers * settings.prefetch_factor):
            self._request_next()

    def __next__(self) -> tuple[R, Any]:
        if self._threads is None or not self._sent:
            self._finish()
            raise StopIteration
        request, future = self._sent[0]
        error = self._wait(future)
        self._sent.popleft()
        self._request_next()
        if error is not None:
            raise _as_lading(error) from (None if isinstance(error, LadingError) else error)
        return request, future.result()

    def close(self) -> None:
        """End the iteration and its threads."""
        threads, self._threads, self._requests = self._threads, None, None
        for _, future in self._sent:
            future.cancel()
        self._sent.clear()
        if threads is not None:
            threads.end()

    def _wait(self, future: Future[Any]) -> BaseException | None:
        try:
            return future.exception(self._timeout)
        except FutureTimeoutError:
            raise WorkerError(
                f"a worker thread did not fetch its batch within timeout={self._timeout:g} seconds. Raise the "
                "timeout, or look for what the dataset waits for."
            ) from None

    def _request_next(self) -> None:
        taken = None if self._threads is None else self._next_request(self._threads.submit)
        if taken is not None:
            self._sent.append(taken)


def _as_lading(error: BaseException) -> BaseException:
    if isinstance(error, LadingError):
        return error
    summary = f"{type(error).__name__}: {error}".rstrip(": ")
    return also(WorkerError(f"a worker thread could not fetch: {summary}"), error)
