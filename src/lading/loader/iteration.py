"""The iterator that a training loop holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.bad_samples import bad_sample_error
from lading.loader.fetch import Delivered
from lading.loader.prefetch import Stream

T = TypeVar("T", covariant=True)


class Batches(Iterator[T], Protocol[T]):
    """An iteration that knows its length, for progress bars."""

    def __len__(self) -> int:
        """Return the batches of the whole epoch or chunk, also where the iteration resumes inside it."""
        ...


class Streaming(Protocol):
    """What an iteration asks of the engine behind it."""

    def steps(self, coming: range) -> Stream:
        """Return the batches of some steps, and maybe of those behind them."""
        ...

    def deliver(self, iteration: Iteration, placed: Delivered, stop: int) -> Bill:
        """Note that a batch reaches the training loop; ``stop``: the step that ends the iteration."""
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
            placed = next(self._stream.items, None) or self._next()
            request, delivery = placed
            if delivery.failure is not None:
                raise bad_sample_error(request.bill, delivery.failure)
        except Exception as error:
            self._error = type(error).__name__  # not the error itself, which keeps the frames of its traceback alive
            self._stream.close()  # ends workers and threads now, not when the traceback is forgotten
            raise
        self._step = request.bill.step + 1
        bill = self._engine.deliver(self, placed, self._steps.stop)
        return (delivery.batch, bill) if self._with_bills else delivery.batch

    def _next(self) -> Delivered:
        """Return the next delivery after the stream has ended, where chunks were not chosen yet: it is begun anew."""
        self._stream = self._engine.steps(range(self._step, self._steps.stop))
        found = next(self._stream.items, None)
        if found is None:
            raise LoaderError(
                f"the batches ended before step {self._step}, the iteration covers steps up to {self._steps.stop - 1}: "
                "a fault of Lading's own. Please report it; a loaded state resumes where it was taken."
            )
        return found

    def release(self) -> Stream:
        """Leave the stream to whoever carries it on."""
        stream, self._stream = self._stream, Stream()
        return stream

    def end(self) -> None:
        """End an iteration whose workers are needed for a newer one."""
        self._is_ended = True
        self._stream.close()


class Carrier:
    """A stream whose iteration has ended, kept for the next: it reads on over the border of a chunk."""

    def __init__(self) -> None:
        self._kept: tuple[int, Stream] | None = None  # step, and the stream that already reads from it on

    @property
    def carries(self) -> bool:
        """Whether anything is read ahead."""
        return self._kept is not None

    def keep(self, step: int, stream: Stream) -> None:
        """Keep the stream that reads from a step on."""
        self._kept = step, stream

    def take(self, step: int) -> Stream | None:
        """Return the stream that reads from a step on already, if there is one; end any other."""
        if self._kept is not None and self._kept[0] != step:
            self.drop()
        kept, self._kept = self._kept, None
        return None if kept is None else kept[1]

    def drop(self) -> None:
        """End what is read ahead: something else comes there now."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()
