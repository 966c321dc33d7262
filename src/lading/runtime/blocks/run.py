"""One block function, any executor.

    function(0), function(1), ...     each writes its own result; what it returns is small
        on="local"    processes of this machine; one worker: in this process, without any
        on="ray"      one Ray task a block
        Task(i, n)    the blocks i, i + n, ... of a job that several machines share, for Slurm arrays

A function must give the same whoever calls it and may be called again: a block that was written before is found by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lading.errors import ConfigError
from lading.runtime.blocks.local import run_local
from lading.runtime.fields import is_whole

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
    """
    if on not in EXECUTORS:
        raise ConfigError(f"on={on!r} is unknown: expected one of {', '.join(map(repr, EXECUTORS))}.")
    if not is_whole(workers, 1):
        raise ConfigError(f"workers={workers!r}: expected at least 1.")
    if on == "ray":
        from lading.runtime.blocks.ray import run_ray  # here: only those who ask for it need it

        return run_ray(function, numbers, workers)
    return run_local(function, numbers, min(workers, len(numbers)))
