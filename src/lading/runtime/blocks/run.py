"""One block function, any executor.

    function(0), function(1), ...     each writes its own result; what it returns is small
        on="local"    processes of this machine; one worker: in this process, without any
        on="ray"      one Ray task a block
        Task(i, n)    the blocks i, i + n, ... of a job that several machines share, for Slurm arrays

A function must give the same whoever calls it and may be called again: a block that was written before is found by it.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from lading.errors import ConfigError, WorkerError
from lading.runtime.fields import is_whole
from lading.runtime.processes import die_with_parent, start_method

T = TypeVar("T")
EXECUTORS = ("local", "ray")
_TASK = re.compile(r"(\d{1,9})/(\d{1,9})")


@dataclass(frozen=True)
class Task:
    """One (``number``, from 0) of several processes that share a job, each started by itself.

    >>> Task.parse("2/4").share(range(10))
    [2, 6]
    """

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Task:
        """Return the task of a text such as ``0/4``."""
        match = _TASK.fullmatch(text)
        if match is None or not int(match[1]) < int(match[2]):
            raise ConfigError(f"task {text!r}: expected I/N with I from 0 to N - 1, for example 0/4.")
        return cls(int(match[1]), int(match[2]))

    def share(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers[self.number :: self.count])


def run_blocks(
    function: Callable[[int], T], numbers: Sequence[int], *, workers: int = 1, on: str = "local"
) -> Iterator[tuple[int, T]]:
    """Yield (number, result) of each block as it is done, in any order; so many workers work at once.

    The function is pickled unless the processes are forked.

    Raises:
        WorkerError: A worker died.
    """
    if on not in EXECUTORS:
        raise ConfigError(f"on={on!r} is unknown: expected one of {', '.join(map(repr, EXECUTORS))}.")
    if not is_whole(workers, 1):
        raise ConfigError(f"workers={workers!r}: expected at least 1.")
    if on == "ray":
        from lading.runtime.blocks.ray import run_ray  # here: only those who ask for it need it

        return run_ray(function, numbers, workers)
    return _in_processes(function, numbers, min(workers, len(numbers)))


def _in_processes(function: Callable[[int], T], numbers: Sequence[int], workers: int) -> Iterator[tuple[int, T]]:
    """Yield (number, result) of each block as processes of this machine have done it; one works in this process."""
    if workers <= 1:
        yield from ((number, function(number)) for number in numbers)
        return
    method = start_method()
    if method != "fork":
        _check_sendable(function)
    parent = os.getpid() if method in ("fork", "spawn") else 0
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method), _begin, (function, parent))
    try:
        numbered = {pool.submit(_work, number): number for number in numbers}
        for future in as_completed(numbered):
            yield numbered[future], future.result()
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
