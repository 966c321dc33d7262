"""Worker processes, asked with requests instead of indices.

requests ─▶ torch's worker processes ─▶ (request, delivery), in order
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, Dataset

from lading.identity.hashing import key64
from lading.loader.fetch import Delivery, FetchRequest

Delivered = tuple[FetchRequest, Delivery]


class Workers:
    """Torch's worker processes.

    Args:
        fetch: What runs in each worker.
        num_workers: Processes.
        seed: Seeds the workers, so that iterating draws nothing from the global generator.
        context: How processes are started.
        prefetch_factor: Requests that each worker holds.
        timeout: Seconds to wait for a batch; 0: for ever.
        worker_init_fn: Called in each worker with its number.
        persistent: Whether the processes stay for the next run.
        dataset: What ``get_worker_info().dataset`` is.
    """

    def __init__(
        self,
        fetch: Callable[[FetchRequest], Delivery],
        *,
        num_workers: int,
        seed: int,
        context: Any = None,
        prefetch_factor: int = 2,
        timeout: float = 0.0,
        worker_init_fn: Callable[[int], None] | None = None,
        persistent: bool = False,
        dataset: Any = None,
    ) -> None:
        self._requests = _Requests()
        self._generator = torch.Generator()
        self._seed = seed
        if context is None and _fork_is_unsafe():
            context = "forkserver"
        self._loader: DataLoader[Any] = DataLoader(
            _Worker(fetch),
            batch_sampler=cast(Any, self._requests),  # torch passes on whatever it yields
            collate_fn=_as_it_is,
            generator=self._generator,
            num_workers=num_workers,
            multiprocessing_context=context,
            prefetch_factor=prefetch_factor,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            persistent_workers=persistent,
        )

    def run(self, requests: Iterator[FetchRequest]) -> Generator[Delivered, None, None]:
        """Fetch batches in the workers, in order."""
        pending: deque[FetchRequest] = deque()
        self._requests.feed(requests, pending)
        self._generator.manual_seed(key64(self._seed, "workers") >> 1)
        try:
            for delivery in self._loader:
                yield pending.popleft(), delivery
        finally:
            self._requests.feed(iter(()), pending)  # keep nothing of what was asked for alive

    def close(self) -> None:
        """End the processes."""
        self._loader._iterator = None


class _Worker(Dataset[Any]):
    """A dataset to torch, a fetch function to us: torch hands ``__getitems__`` whatever the batch sampler gave."""

    def __init__(self, fetch: Callable[[FetchRequest], Delivery]) -> None:
        self.fetch = fetch

    def __getitems__(self, request: FetchRequest) -> Delivery:
        return self.fetch(request)


class _Requests:
    """The batch sampler of the workers: yields requests and remembers which are on their way."""

    def __init__(self) -> None:
        self._next: Callable[[], Iterator[FetchRequest]] = lambda: iter(())

    def feed(self, requests: Iterator[FetchRequest], pending: deque[FetchRequest]) -> None:
        def remembered() -> Iterator[FetchRequest]:
            for request in requests:
                pending.append(request)
                yield request

        self._next = remembered

    def __iter__(self) -> Iterator[FetchRequest]:
        return self._next()


def _as_it_is(delivery: Any) -> Any:
    return delivery


def _fork_is_unsafe() -> bool:
    """Say whether a forked child could inherit a lock that is never released: JAX has threads that do not wait."""
    return "jax" in sys.modules
