"""One iteration over requests, whoever fetches. Apart because processes and threads share it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

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
