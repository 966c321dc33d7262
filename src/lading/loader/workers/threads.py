"""Worker threads: the same interface and order as worker processes, without processes.

For sources that release the interpreter's lock while they read or decode:
nothing is pickled or copied. A fork waits until no thread is in the middle of a
fetch (``runtime.threads``).
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

from lading.errors import LadingError, WorkerError
from lading.loader.failure import also
from lading.loader.workers.processes import OrderedRun, check_numbers
from lading.runtime.processes import Busy

R = TypeVar("R")
THREAD_NAME = "lading-worker"


class ThreadWorkers:
    """Threads that fetch ahead and return results in order.

    Global random generators belong to all threads together: ``fetch`` must not draw from them.

    Args:
        fetch: Makes a result of a request; called in several threads at once.
    """

    def __init__(
        self,
        fetch: Callable[[Any], Any],
        *,
        num_workers: int,
        prefetch_factor: int = 2,
        timeout: float = 0.0,
        worker_init_fn: Callable[[int], None] | None = None,
    ) -> None:
        check_numbers(num_workers, prefetch_factor, timeout)
        self._fetch, self._num_workers, self._init = fetch, num_workers, worker_init_fn
        self._depth, self._timeout = num_workers * prefetch_factor, timeout
        self._runs: weakref.WeakSet[ThreadRun[Any]] = weakref.WeakSet()

    def run(self, requests: Iterator[R]) -> Generator[tuple[R, Any], None, None]:
        """Start fetching now; iterate over (request, result) in order."""
        threads = _Threads(self._fetch, self._init, self._num_workers)
        run = ThreadRun(requests, threads, self._depth, self._timeout)
        self._runs.add(run)
        return run

    def close(self) -> None:
        """End all threads and iterations."""
        for run in list(self._runs):
            run.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_runs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._runs = weakref.WeakSet()


class _Threads:
    """Running threads and the jobs they take."""

    def __init__(self, fetch: Callable[[Any], Any], init: Callable[[int], None] | None, count: int) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Any] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs, fetch, init, k), name=f"{THREAD_NAME}-{k}", daemon=True)
            for k in range(count)
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


def _work(
    jobs: queue.SimpleQueue[tuple[Future[Any], Any] | None],
    fetch: Callable[[Any], Any],
    init: Callable[[int], None] | None,
    number: int,
) -> None:
    busy, broken = Busy(), None
    try:
        if init is not None:
            with busy:
                init(number)
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
                result = fetch(request)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)
            del result
        del job, future, request  # nothing may be held longer than by its user


class ThreadRun(OrderedRun[R]):
    """One iteration over requests; ends its threads."""

    def __init__(self, requests: Iterator[R], threads: _Threads, depth: int, timeout: float) -> None:
        super().__init__(requests)
        self._threads: _Threads | None = threads
        self._timeout = timeout or None
        self._sent: deque[tuple[R, Future[Any]]] = deque()
        for _ in range(depth):
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
