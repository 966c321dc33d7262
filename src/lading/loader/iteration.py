"""The iterator that a training loop holds. Apart from ``engine``: it knows no plan, only when a batch is delivered."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol, TypeVar

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.bad_samples import bad_sample_error
from lading.loader.fetch import Delivery
from lading.loader.prefetch import Delivered

T = TypeVar("T", covariant=True)


class Batches(Iterator[T], Protocol[T]):
    """An iteration that knows its length, for progress bars."""

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk, also where the iteration resumes inside it."""
        ...


class Iteration(Iterator[Any]):
    """The batches of one epoch or chunk, each with its bill.

    Args:
        deliver: Called with the iteration, a bill, its delivery and the step that ends the iteration when a batch
            reaches the training loop.
        stream: The batches.
        steps: Steps of the whole epoch or chunk.
        with_bills: Whether to yield (batch, bill) or the batch alone.
        holds_one: Whether the caller asks for one batch more than it has passed on. A batch then counts as delivered
            when the next one is asked for.
    """

    def __init__(
        self,
        deliver: Callable[[Iteration, Bill, Delivery, int], None],
        stream: Generator[Delivered, None, None],
        steps: range,
        with_bills: bool,
        holds_one: bool,
    ) -> None:
        self._deliver_to, self._stream, self._steps, self._with_bills = deliver, stream, steps, with_bills
        self._holds_one, self._held = holds_one, deque[tuple[Bill, Delivery]]()
        self._is_ended = False

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk."""
        return len(self._steps)

    def __next__(self) -> Any:
        if self._is_ended:
            raise LoaderError(
                "a newer iteration over this loader took its worker processes: an older one cannot continue. Make a "
                "loader for each of them, or pass persistent_workers=False."
            )
        try:
            request, delivery = next(self._stream)
        except StopIteration:
            self._deliver()
            raise
        if delivery.failure is not None:
            self._stream.close()  # ends workers and threads now, not when the traceback is forgotten
            raise bad_sample_error(request.bill, delivery.failure)
        bill = delivery.bill or request.bill
        self._deliver()
        self._held.append((bill, delivery))
        if not self._holds_one:
            self._deliver()
        return (delivery.batch, bill) if self._with_bills else delivery.batch

    def _deliver(self) -> None:
        """Note that the batch held back, if there is one, reaches the training loop."""
        if self._held:
            self._deliver_to(self, *self._held.popleft(), self._steps.stop)

    def end(self) -> None:
        """End an iteration whose workers are needed for a newer one."""
        self._is_ended = True
        self._stream.close()
