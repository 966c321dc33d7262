"""The iterator that a training loop holds."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.bad_samples import bad_sample_error
from lading.loader.fetch import Delivery
from lading.loader.prefetch import Delivered

T = TypeVar("T", covariant=True)
Stream = Generator[Delivered, None, None]


class Batches(Iterator[T], Protocol[T]):
    """An iteration that knows its length, for progress bars."""

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk, also where the iteration resumes inside it."""
        ...


class Streaming(Protocol):
    """What an iteration asks of the engine behind it."""

    def deliver(self, iteration: Iteration, bill: Bill, delivery: Delivery, stop: int) -> None:
        """Note that a batch reaches the training loop; ``stop``: the step that ends the iteration."""
        ...

    def renumbered(self, bill: Bill) -> Bill:
        """Return a bill with the chunk that its step has now."""
        ...

    def stream_from(self, steps: range) -> Stream:
        """Return the batches of some steps, and maybe of those behind them."""
        ...

    def carry(self, iteration: Iteration, stream: Stream, step: int) -> None:
        """Take the stream of an iteration that has ended at a step, where another continues it."""
        ...


class Iteration(Iterator[Any]):
    """The batches of one epoch or chunk, each with its bill.

    Args:
        engine: The engine, which notes every batch that reaches the training loop.
        stream: The batches.
        steps: Steps of the whole epoch or chunk; the stream may run on behind them.
        first: The first of them to yield.
        with_bills: Whether to yield (batch, bill) or the batch alone.
    """

    def __init__(self, engine: Streaming, stream: Stream, steps: range, first: int, with_bills: bool) -> None:
        self._engine, self._stream, self._steps, self._with_bills = engine, stream, steps, with_bills
        self._step = first
        self._is_ended = False
        self._error = ""

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk."""
        return len(self._steps)

    def __next__(self) -> Any:
        if self._step >= self._steps.stop:
            self._stream.close()  # ends workers, unless it is carried on
            raise StopIteration
        if self._is_ended:
            raise LoaderError(
                "a newer iteration over this loader took its worker processes: an older one cannot continue. Make a "
                "loader for each of them, or pass persistent_workers=False."
            )
        if self._error:
            raise LoaderError(
                f"this iteration ended with an error: {self._error}. Iterate over the loader again to "
                "start its epoch or chunk anew, or load a state to resume where it was taken."
            )
        try:
            request, delivery = next(self._stream, None) or self._next()
            if delivery.failure is not None:
                raise bad_sample_error(request.bill, delivery.failure)
        except Exception as error:
            self._error = type(error).__name__  # not the error itself, which keeps the frames of its traceback alive
            self._stream.close()  # ends workers and threads now, not when the traceback is forgotten
            raise
        bill = self._engine.renumbered(delivery.bill or request.bill)
        self._step = bill.step + 1
        self._engine.deliver(self, bill, delivery, self._steps.stop)
        if self._step == self._steps.stop:
            self._engine.carry(self, self._stream, self._step)
        return (delivery.batch, bill) if self._with_bills else delivery.batch

    def _next(self) -> Delivered:
        """Return the next delivery after the stream has ended, where chunks were not chosen yet: it is begun anew."""
        self._stream = self._engine.stream_from(range(self._step, self._steps.stop))
        found = next(self._stream, None)
        if found is None:
            raise LoaderError(
                f"the batches ended before step {self._step}, the iteration covers steps up to {self._steps.stop - 1}: "
                "a fault of Lading's own. Please report it; a loaded state resumes where it was taken."
            )
        return found

    def release(self) -> None:
        """Leave the stream to whoever carries it on."""
        self._stream = ended()

    def end(self) -> None:
        """End an iteration whose workers are needed for a newer one."""
        self._is_ended = True
        self._stream.close()


def ended() -> Stream:
    """Return a stream without batches."""
    yield from ()
