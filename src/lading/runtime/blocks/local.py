"""Blocks in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from lading.errors import ConfigError, WorkerError
from lading.runtime.processes import die_with_parent, start_method

T = TypeVar("T")
_AHEAD = 4


def run_local(function: Callable[[int], T], numbers: Sequence[int], workers: int) -> Iterator[tuple[int, T]]:
    """Yield (number, result) of each block as it is done; one worker works in this process.

    Raises:
        WorkerError: A worker died.
    """
    if workers <= 1:
        yield from ((number, function(number)) for number in numbers)
        return
    method = start_method()
    if method != "fork":
        _check_sendable(function)
    parent = os.getpid() if method in ("fork", "spawn") else 0
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), _begin, (function, parent))
    try:
        first_done = lambda futures: wait(futures, return_when=FIRST_COMPLETED).done  # noqa: E731
        for number, future in as_done(numbers, _AHEAD * workers, lambda n: pool.submit(_work, n), first_done):
            yield number, future.result()
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process died while it worked on a block: expected it to finish. Was there too little memory? "
            "Finished blocks are kept; run the same again, perhaps with fewer workers."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check_sendable(function: Callable[[int], Any]) -> None:
    try:
        pickle.dumps(function)
    except Exception as error:  # whatever a user's object raises
        raise ConfigError(
            f"what the blocks need cannot be sent to worker processes ({error}): expected what pickle takes, for they "
            "are not forked here (JAX is loaded, or multiprocessing was told so). Give a tokenizer by its name "
            "('package.module:object'), or use one worker."
        ) from error


def as_done(
    numbers: Iterable[int], most: int, start: Callable[[int], Any], wait_for: Callable[[list[Any]], Iterable[Any]]
) -> Iterator[tuple[int, Any]]:
    """Start something for each number, at most so many at once; yield (number, what was started) once it is done."""
    left = iter(numbers)
    running: dict[Any, int] = {}
    while True:
        while len(running) < most and (number := next(left, None)) is not None:
            running[start(number)] = number
        if not running:
            return
        for done in wait_for(list(running)):
            yield running.pop(done), done


_function: Callable[[int], Any] | None = None


def _begin(function: Callable[[int], Any], parent: int) -> None:
    """Begin a worker: it keeps the function and dies with its parent."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends its workers
    if parent:
        die_with_parent(parent)


def _work(number: int) -> Any:
    assert _function is not None
    return _function(number)
