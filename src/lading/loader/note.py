"""Note that a batch reached the training loop: the cursor advances, the books are kept, and only then is it yielded.

    bill ─▶ cursor · last bill · bad samples ─▶ trackers ─▶ observers

Observers are policies that may change what comes; most loaders have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from lading.identity import Bill, World
from lading.loader.bad_samples import BadSamples
from lading.loader.cursor import Cursor
from lading.loader.trackers import Trackers
from lading.order import Event, Plan


class Observed(Protocol):
    """What observers ask of the engine."""

    @property
    def plan(self) -> Plan: ...
    @property
    def step(self) -> int: ...
    @property
    def world(self) -> World: ...

    def add_event(self, event: Event) -> None:
        """Change the plan from a step on that has not been yielded."""
        ...


class Observer(Protocol):
    """Someone who may change what comes, by what came."""

    @property
    def resizes(self) -> bool:
        """Whether it chooses sizes, so that a resumed run keeps the saved ones."""
        ...

    def begin(self, engine: Observed, step: int) -> None:
        """Note that an iteration starts at a step."""
        ...

    def amended(self, engine: Observed, bill: Bill) -> Bill:
        """Return a bill as the plan has it now."""
        ...

    def noted(self, engine: Observed) -> None:
        """Note that a batch was yielded."""
        ...

    def validated(self, engine: Observed, found: Mapping[str, Any], trackers: Trackers) -> None:
        """Note a validation before the next step: ``metric``, ``loss`` and what it was made ``on``."""
        ...

    def state(self, plan: Plan, step: int) -> dict[str, Any]:
        """Return what the loader's state keeps of it, before a step."""
        ...

    def load(self, saved: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        ...


class Notes:
    """What a loader knows of the batches that it yielded, and who is told of each.

    Args:
        limit: Bad samples after which the run stops.
        observers: Those who may change what comes.

    Attributes:
        cursor: Where the loader is.
        last_bill: The bill of the batch yielded last.
        on_yield: Called with the bill of each batch of the newest iteration, before its user gets it.
        loaded: The state loaded last, until its first batch is yielded.
        remarked: Sentences about batches that the trackers have.
    """

    def __init__(self, limit: int, observers: Sequence[Observer]) -> None:
        self.cursor, self.bad_samples, self.observers = Cursor(), BadSamples(limit), observers
        self.trackers = Trackers(None)
        self.last_bill: Bill | None = None
        self.on_yield: Callable[[Bill], None] | None = None
        self.loaded: dict[str, Any] | None = None
        self.is_peeking = False  # batches are only looked at
        self.remarked: set[str] = set()

    def remark(self, step: int, text: str) -> None:
        """Have a sentence about the batches of a run written down, once."""
        if text not in self.remarked and not self.is_peeking:
            self.remarked.add(text)
            self.trackers.note(step, text)

    def note(self, engine: Observed, bill: Bill, stop: int, batch: Any, *, moves: bool) -> None:
        """Note that a batch reached the training loop.

        Args:
            engine: For those who change its plan.
            bill: Its bill.
            stop: Step that ends the iteration.
            batch: Its content, for trackers that want it.
            moves: Whether the loader is at the next step now.
        """
        if moves:
            self.cursor.advance(bill.step, stop)
            self.last_bill = bill
            if self.on_yield is not None:
                self.on_yield(bill)
        self.loaded = None
        if bill.deviations:
            self.bad_samples.note(bill)
        self.trackers.update(bill, batch)
        if moves and self.observers and not self.is_peeking:
            for observer in self.observers:
                observer.noted(engine)
