"""Fetch in this process: when a batch is asked for, or ahead of it in a thread.

    requests ─▶ fetch ─▶ place ─────────────────────▶ deliveries     quick batches; code that may draw random numbers
    requests ─▶ thread: fetch ─▶ place, ahead ──────▶ deliveries     batches that take a while, and whose user does
    workers  ─▶ thread: place, ahead ───────────────▶ deliveries     pinning, copies to a device

All give the same deliveries in the same order. Code that may draw from the
global random generators never runs in a thread: it would race with training.

Apart from ``engine``: when a thread helps, and how far it may run ahead.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator

from lading.errors import MixtureError
from lading.loader.fetch import Delivery, FetchRequest
from lading.loader.request import PREFETCH, PREFETCH_FACTOR, WorkerRequest
from lading.order.plan import Plan
from lading.runtime.threads import ahead

Delivered = tuple[FetchRequest, Delivery]
Fetch = Callable[[FetchRequest], Delivery]
_QUICK_SECONDS = 2e-4  # a batch that is fetched in less is quicker to fetch than to pass between threads
_SEEN = 4


class Pace:
    """Whether a thread should fetch ahead, by how long the last batches took and how long their user did.

    Attributes:
        depth: Batches to fetch ahead; None: not known yet.
    """

    def __init__(self) -> None:
        self.depth: int | None = None
        self._seen: deque[tuple[float, float]] = deque(maxlen=_SEEN)

    def note(self, fetching: float, using: float) -> None:
        """Note the seconds that a batch took to fetch, and its user until the next one was asked for."""
        self._seen.append((fetching, using))
        if len(self._seen) == _SEEN:
            quickest, soonest = (min(seconds) for seconds in zip(*self._seen, strict=True))
            if quickest < _QUICK_SECONDS:
                self.depth = 0  # such batches stay quick: nothing is measured any more
            elif soonest > quickest / 2:  # a user that only takes batches is served faster without a thread
                self.depth = PREFETCH


def in_this_process(
    fetch: Fetch, requests: Iterator[FetchRequest], prefetch: int | None, pace: Pace
) -> Generator[Delivered, None, None]:
    """Fetch without workers: when asked for, or ahead in a thread where that hides something.

    Args:
        fetch: Makes the batches.
        requests: What to fetch.
        prefetch: Batches to fetch ahead; None: as the pace says.
        pace: What is known of earlier batches.
    """
    for request in requests:
        depth = pace.depth if prefetch is None else prefetch
        if depth == 0:
            yield request, fetch(request)
            continue
        start = time.perf_counter()
        delivery = fetch(request)
        ready = time.perf_counter()
        yield request, delivery
        del delivery  # a batch is held no longer than its user holds it
        if depth is None:
            pace.note(ready - start, time.perf_counter() - ready)
        else:
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
