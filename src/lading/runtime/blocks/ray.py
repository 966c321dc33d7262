"""Blocks as Ray tasks: one task a block, which writes its own result; no rows pass through the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from lading.errors import missing_extra

T = TypeVar("T")
_AHEAD = 2


def run_ray(function: Callable[[int], T], numbers: Sequence[int], workers: int) -> Iterator[tuple[int, T]]:
    """Yield (number, result) of each block as it is done; the function is sent once.

    A Ray that the program has started is used and left running; otherwise ``RAY_ADDRESS`` is joined, or a Ray of this
    machine, with as many processors as workers, is started and ended.
    """
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray", "building on Ray") from error
    is_ours = not ray.is_initialized()
    if is_ours:
        own: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
        ray.init(log_to_driver=False, configure_logging=False, **({} if os.environ.get("RAY_ADDRESS") else own))
    try:
        yield from _results(ray, function, numbers, workers)
    finally:
        if is_ours:
            ray.shutdown()


def _results(ray: Any, function: Callable[[int], T], numbers: Sequence[int], workers: int) -> Iterator[tuple[int, T]]:
    """Yield (number, result), with a few tasks a worker under way: Ray keeps the results of those that are not read."""
    sent = ray.put(function)
    task = ray.remote(num_cpus=1, max_retries=3)(_work)
    left, running = iter(numbers), dict[Any, int]()
    while True:
        while len(running) < _AHEAD * workers and (number := next(left, None)) is not None:
            running[task.remote(sent, number)] = number
        if not running:
            return
        for done in ray.wait(list(running), num_returns=1)[0]:
            yield running.pop(done), _result(ray, done)


def _result(ray: Any, reference: Any) -> Any:
    """Return the result of a task; an error is the one that was raised there."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise cause if isinstance(cause, Exception) else error from None


def _work(function: Callable[[int], Any], number: int) -> Any:
    return function(number)
