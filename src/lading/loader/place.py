"""Put a batch where it is used: pinned memory, devices. Most faces have nothing to do here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from lading.identity import Bill
from lading.identity.hashing import key64
from lading.loader.face import Face
from lading.loader.fetch import Delivered, Delivery


class Placer:
    """Place batches.

    Args:
        face: Knows where they go.
        seed: Seed of the plan: a face may draw random numbers, which belong to the batch.
        keeps_content: Says whether anyone records the rows as they were before.
    """

    def __init__(self, face: Face, seed: int, keeps_content: Callable[[], bool]) -> None:
        self._face, self._seed, self._keeps_content = face, seed, keeps_content

    def __call__(self, fetched: Delivered) -> Delivered:
        """Return a batch in its place, with the rows that this process answers for."""
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
