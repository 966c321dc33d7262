"""The iterator that a training loop holds, and how far it runs ahead of training.

    bill ─▶ fetch ─▶ name ─▶ place                         when asked for: small batches; code that may draw numbers
    thread: bill ─▶ fetch ─▶ name ─▶ place, ahead          batches of LARGE_BYTES or more
    workers: fetch ─▶ name ─▶ thread: place, ahead         pinning, copies to a device

All give the same batches in the same order. Code that may draw from the
global random generators never runs in a thread: it would race with training.

The rule: the first batch of an iteration is fetched when it is asked for. If it has ``LARGE_BYTES`` or more, a thread
fetches ``PREFETCH`` batches ahead from then on. ``prefetch=`` is another number for batches of every size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lading.errors import LoaderError, MixtureError
from lading.identity import Bill
from lading.loader.failure import bad_sample_error
from lading.loader.fetch import Delivered, Fetcher
from lading.loader.request import PREFETCH, PREFETCH_FACTOR, LoaderRequest, WorkerRequest
from lading.order.plan import Plan
from lading.runtime.processes import ahead

if TYPE_CHECKING:
    from lading.loader.workers import ThreadWorkers, Workers

LARGE_BYTES = 1 << 20  # a smaller batch is quicker to gather than to pass between threads


class Stream:
    """Batches on their way, and what has to end with them, first to last: threads, worker processes."""

    def __init__(self, items: Iterable[Delivered] = (), *closes: Generator[Any, Any, Any]) -> None:
        self.items, self._closes = iter(items), closes

    def close(self) -> None:
        """End whatever works ahead; no batch comes any more."""
        self.items = iter(())
        for working in self._closes:
            working.close()


def prefetched(
    placed: Iterator[Delivered],
    fetched: Iterator[Delivered],
    asked: LoaderRequest,
    plan: Plan,
    depth: int,
    *,
    may_run_ahead: bool,
) -> Stream:
    """Return a stream that runs as far ahead as the plan allows.

    Args:
        placed: Makes the batches.
        fetched: What it makes them of; workers, where they fetch.
        depth: Batches that may wait, placed, behind workers.
        may_run_ahead: Whether a thread may make them.
    """
    if isinstance(fetched, Generator):
        left = plan.lookahead_steps - asked.workers.batches - 1
        made = ahead(placed, max(min(depth, left), 0))
        return Stream(made, made, fetched)
    made = run_ahead(placed, asked.prefetch, most_ahead(plan) if may_run_ahead else 0)
    return Stream(made, made)


def run_ahead(items: Iterator[Delivered], prefetch: int | None, most: int) -> Generator[Delivered, None, None]:
    """Make batches when they are asked for, or ahead in a thread; by the size of the first where nothing is said."""
    found = next(items, None)
    if found is None:
        return
    if prefetch is None:
        prefetch = PREFETCH if size_of(found[1].batch) >= LARGE_BYTES else 0
    yield found
    del found  # a batch is held no longer than its user holds it
    depth = min(prefetch, most)
    yield from ahead(items, depth) if depth else items


def size_of(batch: Any) -> int:
    """Return the bytes of the arrays of a batch; what is no array counts nothing.

    >>> import numpy as np
    >>> size_of({"x": np.zeros((2, 3)), "y": [np.zeros(5, np.int8)], "text": ["a", "b"]})
    53
    """
    if isinstance(batch, Mapping):
        return sum(map(size_of, batch.values()))
    if isinstance(batch, list | tuple):
        return sum(map(size_of, batch))
    if dataclasses.is_dataclass(batch):
        return sum(size_of(getattr(batch, field.name)) for field in dataclasses.fields(batch))
    return int(getattr(batch, "nbytes", 0))


def worker_pool(
    asked: WorkerRequest, plan: Plan, fetcher: Fetcher, dataset: Any, *, persistent: bool
) -> Workers | ThreadWorkers:
    """Return workers that fetch as far ahead as the plan allows; ``dataset``: what they see as theirs."""
    from lading.loader.workers import ProcessSettings, Settings, ThreadWorkers, Workers  # not without workers

    common = asked.num_workers, capped_prefetch_factor(plan, asked), asked.timeout, asked.worker_init_fn
    if asked.kind == "threads":
        return ThreadWorkers(Settings(fetcher, *common))
    own = fetcher.seed, asked.context, dataset, fetcher.arrays.memory
    return Workers(ProcessSettings(fetcher.in_worker, *common, *own), persistent=persistent)


def check_threads(asked: WorkerRequest, fetcher: Fetcher) -> None:
    """Refuse worker threads for code that may draw random numbers."""
    if asked.kind == "threads" and asked.num_workers and not fetcher.random_free:
        raise LoaderError(
            "workers='threads' needs sources and a collate_fn that draw no random numbers from the global "
            "generators, which belong to training: say so with random_free = True on each, or use processes."
        )


def capped_prefetch_factor(plan: Plan, workers: WorkerRequest) -> int:
    """Return the batches that each worker may hold, so that all stay within the plan's lookahead."""
    wanted = workers.prefetch_factor or PREFETCH_FACTOR
    factor = min(wanted, plan.lookahead_steps // workers.num_workers)
    if factor < 1:
        raise MixtureError(
            f"{workers.num_workers} workers prefetch at least {workers.num_workers} batches, lookahead_steps="
            f"{plan.lookahead_steps} allows fewer: an event would come too late. Raise lookahead_steps, or use fewer "
            "workers."
        )
    return factor


def most_ahead(plan: Plan) -> int:
    """Return the batches that a thread may hold, so that all stay within the plan's lookahead."""
    return max(plan.lookahead_steps - 1, 0)  # the thread holds one batch more than its queue


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
