"""Steps that another loader pulls from ours: pulled is not delivered.

    pull    0 1 2 3 4 ...        requests given to a loader that was built from parts of ours
    queue       │ 2 3 4          pulled, not yet seen by the training loop
    deliver   ◀─┘                the batch reached the loop: cursor, trackers and policy are notified

Without workers the collate call is the delivery. With workers a delivery is
known only if it is reported (``Loader.delivered``); until then no state can say
where the run is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.bill import request_at
from lading.loader.engine import Engine
from lading.loader.fetch import FetchRequest


class Pull(NamedTuple):
    """One request as it travels.

    Attributes:
        iteration: Number of the iteration over the batch sampler, from 0.
        number: Number of the request in it, from 0.
        request: What is asked for.
    """

    iteration: int
    number: int
    request: FetchRequest


class Pulls:
    """What was pulled from an engine, and how much of it arrived.

    Args:
        engine: The engine that is notified.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: deque[Pull] = deque()
        self._iteration = -1
        self._stop = 0
        self._has_begun = False

    def start(self) -> Iterator[Pull]:
        """Yield the requests of the coming iteration."""
        self._iteration += 1
        self._queue.clear()
        self._has_begun = False
        steps = self._engine.coming()
        self._stop = steps.stop
        names = self._engine.name_columns()
        self._engine.fetcher.parts = self._engine.plan.parts
        for number, step in enumerate(steps):
            pull = Pull(self._iteration, number, request_at(self._engine, step, names))
            self._queue.append(pull)
            yield pull

    @property
    def are_unreported(self) -> bool:
        """Whether batches were pulled of which none was reported, so that the position of the run is unknown."""
        return bool(self._queue) and not self._has_begun

    def deliver(self, pull: Pull | None = None, bill: Bill | None = None, batch: Any = None, remark: str = "") -> Bill:
        """Note that a batch reached the training loop.

        Args:
            pull: Which one; None: the first that is on its way.
            bill: Its bill, where it departs from the request.
            batch: Its content.
            remark: Why its rows could not be counted.
        """
        while self._queue and pull is not None and self._queue[0] != pull:
            self._queue.popleft()  # dropped on the way: ``skip_first_batches``
        if not self._queue:
            raise LoaderError(
                "a batch was reported as delivered that was never pulled in this iteration. Report each batch of the "
                "loader built from this one once, in order."
            )
        found = self._queue.popleft()
        bill = bill or found.request.bill
        if not self._has_begun:
            if bill.step != self._engine.coming().start:
                self._engine.move_to(bill.step)
            self._engine.begin()
            self._has_begun = True
        self._engine.note(bill, self._stop, batch)
        if remark := remark or self._engine.fetcher.counter.uncounted:
            self._engine.notes.remark(bill.step, remark)
        return bill
