"""Fetch in this process: when a batch is asked for, or ahead of it in a thread.

    requests ─▶ fetch ─▶ place ─────────────────────▶ deliveries     small batches; code that may draw random numbers
    requests ─▶ thread: fetch ─▶ place, ahead ──────▶ deliveries     batches of LARGE_BYTES or more
    workers  ─▶ thread: place, ahead ───────────────▶ deliveries     pinning, copies to a device

All give the same deliveries in the same order. Code that may draw from the
global random generators never runs in a thread: it would race with training.

The rule: the first batch of an iteration is fetched when it is asked for. If it has ``LARGE_BYTES`` or more, a thread
fetches ``PREFETCH`` batches ahead from then on. ``prefetch=`` is another number for batches of every size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from lading.errors import MixtureError
from lading.loader.fetch import Delivery, FetchRequest
from lading.loader.request import PREFETCH, PREFETCH_FACTOR, WorkerRequest
from lading.order.plan import Plan
from lading.runtime.threads import ahead

Delivered = tuple[FetchRequest, Delivery]
Fetch = Callable[[FetchRequest], Delivery]
LARGE_BYTES = 1 << 20  # a smaller batch is quicker to gather than to pass between threads


def in_this_process(
    fetch: Fetch, requests: Iterator[FetchRequest], prefetch: int | None, most: int
) -> Generator[Delivered, None, None]:
    """Fetch without workers: when asked for, or ahead in a thread.

    Args:
        fetch: Makes the batches.
        requests: What to fetch.
        prefetch: Batches to fetch ahead; None: by the size of the first.
        most: More of them are never fetched ahead.
    """
    first = next(requests, None)
    if first is None:
        return
    delivery = fetch(first)
    if prefetch is None:
        prefetch = PREFETCH if size_of(delivery.batch) >= LARGE_BYTES else 0
    yield first, delivery
    del delivery  # a batch is held no longer than its user holds it
    yield from ahead(((request, fetch(request)) for request in requests), min(prefetch, most))


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


def placed(
    deliveries: Generator[Delivered, None, None], place: Callable[[Delivery, FetchRequest], Delivery], depth: int
) -> Generator[Delivered, None, None]:
    """Place what workers deliver, ``depth`` batches ahead in a thread."""
    try:
        yield from ahead(((request, place(delivery, request)) for request, delivery in deliveries), depth)
    finally:
        deliveries.close()


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
