"""Put a batch where it is used: pinned memory, devices. A ``Face`` says where, and all else that the engine asks of a
framework; most have nothing to do here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from lading.errors import WorldError
from lading.identity import Bill, World
from lading.identity.hashing import key64
from lading.loader.fetch import Delivered, Delivery
from lading.loader.gather import Arrays
from lading.order import Plan


class Face(Protocol):
    """What the engine asks of a framework, in the process of the training loop.

    Attributes:
        arrays: Its arrays; they travel to the workers.
        places: Whether ``place`` has anything to do.
        places_freely: Whether ``place`` may run in a thread: it draws from no global random generator.
        depth: Placed batches that wait, ready, where workers fetch.
    """

    @property
    def arrays(self) -> Arrays: ...
    @property
    def places(self) -> bool: ...
    @property
    def places_freely(self) -> bool: ...
    @property
    def depth(self) -> int: ...

    def world(self) -> World:
        """Look this process up among the others."""
        ...

    def share(self, plan: Plan, step: int, world: World) -> Bill:
        """Return the rows of a step that this process reads."""
        ...

    def place(self, batch: Any, bill: Bill, batch_rows: int) -> tuple[Any, Bill, Any]:
        """Put a batch where it is used: pin it, copy it to devices.

        Args:
            batch: The rows that this process read.
            bill: What they are.
            batch_rows: Rows of a complete global batch at its step.

        Returns:
            The batch to yield, the rows that this process answers for in the books, and the content of these rows.
        """
        ...


def check_world(began: World, now: World) -> None:
    """Refuse to continue as another rank than the loader began as."""
    if now != began:
        raise WorldError(
            f"this loader began as rank {began.rank} of {began.world_size} and is now rank {now.rank} of "
            f"{now.world_size}. Make the loader after the process group, or pass world=World(rank, world_size)."
        )


class Placer:
    """Place batches.

    Args:
        seed: Seed of the plan: a face may draw random numbers, which belong to the batch.
        keeps_content: Says whether anyone records the rows as they were before.
    """

    def __init__(self, face: Face, seed: int, keeps_content: Callable[[], bool]) -> None:
        self._face, self._seed, self._keeps_content = face, seed, keeps_content

    def __call__(self, fetched: Delivered) -> Delivered:
        request, delivery = fetched
        if delivery.failure is not None:
            return fetched
        bill = delivery.bill or request.bill
        with contextlib.nullcontext() if self._face.places_freely else self._isolated(bill):
            batch, bill, content = self._face.place(delivery.batch, bill, request.batch_rows)
        return request, Delivery(batch, bill, None, content if self._keeps_content() else None, delivery.remark)

    def _isolated(self, bill: Bill) -> contextlib.AbstractContextManager[None]:
        from lading.runtime.random_state import isolated_rng  # opens numpy.random

        return isolated_rng(key64(self._seed, "place", bill.epoch, bill.step) >> 1)
