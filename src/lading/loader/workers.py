"""Three ways to run a fetcher: in the process, in a thread ahead of it, in worker processes.

    orders ─▶ in_process ────────────────────────▶ deliveries
    orders ─▶ thread, a few batches ahead ───────▶ deliveries     big columns in memory
    orders ─▶ torch's worker processes ──────────▶ deliveries     sources that work per sample

All three give the same deliveries in the same order.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset

from lading.identity.hashing import key64
from lading.loader.fetch import Delivery, Fetcher, WorkOrder
from lading.runtime.threads import ahead

Delivered = tuple[WorkOrder, Delivery]
PREFETCH = 2
PREFETCH_BYTES = 1 << 20  # below this a batch is quicker to gather than to hand over


def in_this_process(
    fetcher: Fetcher, orders: Iterator[WorkOrder], prefetch: int | None, pin: bool
) -> Generator[Delivered, None, None]:
    """Fetch without workers: when asked for, or ahead in a thread where that hides something.

    Args:
        fetcher: Makes the batches.
        orders: What to fetch.
        prefetch: Batches to fetch ahead; None: ``PREFETCH``, as soon as batches are large and whoever uses them takes
            a while. A consumer that only takes batches is served faster without a thread.
        pin: Whether to pin the batches' memory.
    """
    fetch = _pinned(fetcher) if pin else fetcher
    for order in orders:
        start = time.perf_counter()
        delivery = fetch(order)
        ready = time.perf_counter()
        is_large = prefetch is None and fetcher.in_columns and nbytes(delivery.batch) >= PREFETCH_BYTES
        yield order, delivery
        del delivery  # nobody may hold a batch longer than its user
        is_used_slowly = time.perf_counter() - ready > (ready - start) / 2
        depth = PREFETCH if is_large and is_used_slowly else prefetch
        if depth:
            yield from ahead(((order, fetch(order)) for order in orders), depth)


def _pinned(fetcher: Fetcher) -> Callable[[WorkOrder], Delivery]:
    return lambda order: fetcher(order).pin_memory()


def nbytes(batch: Any) -> int:
    """Return the bytes of the tensors in a batch."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, dict):
        return sum(map(nbytes, batch.values()))
    return sum(map(nbytes, batch)) if isinstance(batch, list | tuple) else 0


class Workers:
    """Torch's worker processes, asked with bills instead of indices.

    Args:
        fetcher: What runs in each worker.
        seed: Seeds the workers, so that iterating draws nothing from the global generator.
        settings: Arguments of torch's ``DataLoader`` about workers.
    """

    def __init__(self, fetcher: Fetcher, seed: int, settings: dict[str, Any]) -> None:
        self._orders = _Orders()
        self._generator = settings.pop("generator") or torch.Generator()
        self._seed = seed
        if settings["multiprocessing_context"] is None and _fork_is_unsafe():
            settings["multiprocessing_context"] = "forkserver"
        self._loader: DataLoader[Any] = DataLoader(
            _Worker(fetcher),
            batch_sampler=cast(Any, self._orders),  # torch passes on whatever it yields
            collate_fn=_as_it_is,
            generator=self._generator,
            **settings,
        )

    def run(self, orders: Iterator[WorkOrder]) -> Generator[Delivered, None, None]:
        """Fetch batches in the workers, in order."""
        pending: deque[WorkOrder] = deque()
        self._orders.feed(orders, pending)
        self._generator.manual_seed(key64(self._seed, "workers") >> 1)
        try:
            for delivery in self._loader:
                yield pending.popleft(), delivery
        finally:
            self._orders.feed(iter(()), pending)  # keep nothing of what was asked for alive


class _Worker(Dataset[Any]):
    """A dataset to torch, a fetcher to us: torch hands ``__getitems__`` whatever the batch sampler gave."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher

    def __getitems__(self, order: WorkOrder) -> Delivery:
        return self.fetcher(order)


class _Orders:
    """The batch sampler of the workers: yields work orders and remembers which are on their way."""

    def __init__(self) -> None:
        self._next: Callable[[], Iterator[WorkOrder]] = lambda: iter(())

    def feed(self, orders: Iterator[WorkOrder], pending: deque[WorkOrder]) -> None:
        def remembered() -> Iterator[WorkOrder]:
            for order in orders:
                pending.append(order)
                yield order

        self._next = remembered

    def __iter__(self) -> Iterator[WorkOrder]:
        return self._next()


def _as_it_is(delivery: Any) -> Any:
    return delivery


def _fork_is_unsafe() -> bool:
    """Say whether a forked child could inherit a lock that nobody will release: JAX has threads that do not wait."""
    return "jax" in sys.modules
