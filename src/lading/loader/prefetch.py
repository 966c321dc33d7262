"""Fetch in this process: when a batch is asked for, or ahead of it in a thread.

    requests ─▶ fetch ─▶ place ─────────────────────▶ deliveries     small batches; code that may draw random numbers
    requests ─▶ thread: fetch ─▶ place, ahead ──────▶ deliveries     big columns in memory
    workers  ─▶ thread: place, ahead ───────────────▶ deliveries     pinning, copies to a device

All give the same deliveries in the same order. Code that may draw from the
global random generators never runs in a thread: it would race with training.

Apart from ``engine``: when a thread helps, and how far it may run ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from lading.errors import MixtureError
from lading.loader.fetch import Delivery, FetchRequest
from lading.loader.request import PREFETCH, PREFETCH_FACTOR, WorkerRequest
from lading.order.plan import Plan
from lading.runtime.threads import ahead

Delivered = tuple[FetchRequest, Delivery]
Fetch = Callable[[FetchRequest], Delivery]
PREFETCH_BYTES = 1 << 20  # below this a batch is quicker to gather than to pass between threads


def in_this_process(
    fetch: Fetch, requests: Iterator[FetchRequest], prefetch: int | None, size_of: Callable[[Any], int] | None
) -> Generator[Delivered, None, None]:
    """Fetch without workers: when asked for, or ahead in a thread where that hides something.

    Args:
        fetch: Makes the batches.
        requests: What to fetch.
        prefetch: Batches to fetch ahead; None: ``PREFETCH``, as soon as batches are large and their user takes a
            while. A user that only takes batches is served faster without a thread.
        size_of: Returns the bytes of a batch; None: batches are always fetched when asked for.
    """
    if size_of is None:
        prefetch = 0
    for request in requests:
        if prefetch == 0:
            yield request, fetch(request)
            continue
        start = time.perf_counter()
        delivery = fetch(request)
        ready = time.perf_counter()
        is_large = prefetch is None and size_of is not None and size_of(delivery.batch) >= PREFETCH_BYTES
        if prefetch is None and not is_large:
            prefetch = 0  # small batches stay small: nothing is measured any more
        yield request, delivery
        del delivery  # a batch is held no longer than its user holds it
        is_used_slowly = is_large and time.perf_counter() - ready > (ready - start) / 2
        depth = PREFETCH if is_used_slowly else prefetch
        if depth:
            yield from ahead(((request, fetch(request)) for request in requests), depth)


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


def capped_prefetch(plan: Plan, prefetch: int | None) -> int | None:
    """Return the batches that a thread may hold, so that all stay within the plan's lookahead."""
    most = max(plan.lookahead_steps - 1, 0)  # the thread holds one batch more than its queue
    if prefetch is None:
        return None if most >= PREFETCH else most
    return min(prefetch, most)
