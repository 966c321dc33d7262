"""Note that a batch reached the training loop: the cursor advances, the books are kept, and only then is it yielded.

    bill ─▶ cursor · last bill · bad samples ─▶ trackers ─▶ observers

Observers are policies that may change what comes; most loaders have none. The cursor is where a loader is, the one
piece of state an order needs:

    iteration   one epoch, or one chunk where the plan has chunks
    iterate     starts at the iteration's first step, or where a loaded state points
    yield       the last batch of an iteration moves the loader to the next one at once,
                because frameworks never ask for the StopIteration
    break off   the next iteration starts the same epoch or chunk again, as torch does

Trackers keep the books: trackers, ledgers, or several of them.

    update(bill)                       every batch, the moment it is yielded
    update(bill, batch)                where ``wants_batch`` is True: content is recorded too
    flush()                            before a state is taken, so that no checkpoint is ahead of the record
    begin(step, plan, world, loaded) → plan
                                       optional: an iteration starts; a ledger may know of samples blocked since
    event(event)                       optional: the plan changes from a step on
    note(step, text)                   optional: a sentence about the run from a step on, for who asks about it
    mark(step) → {run, attempt, launch}
                                       optional, after flush(): what a state taken before a step says of its run
    launched → {run, attempt, launch, step}
                                       optional: the attempt that it opened last, and the step after what it was told
    follow(launched)                   optional: another tracker recorded the same loader before, in this process

``loaded`` is what the loader resumed from and has not iterated past yet: ``run``, ``attempt``, ``launch`` and ``step``
of the state, or None where no state was loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from lading.errors import ArgumentError
from lading.identity import Bill, World
from lading.loader.failure import BadSamples
from lading.order import Event, Plan

Loaded = Mapping[str, Any] | None


@runtime_checkable
class Tracker(Protocol):
    """What every tracker has."""

    def update(self, bill: Any, /) -> None: ...
    def flush(self) -> None: ...


@runtime_checkable
class BeginsIterations(Protocol):
    """A tracker that is notified where an iteration starts, and may know of events that the plan lacks."""

    def begin(self, step: int, plan: Plan, world: World, loaded: Loaded, /) -> Plan | None: ...


@runtime_checkable
class TakesEvents(Protocol):
    """A tracker that records changes of the plan."""

    def event(self, event: Event, /) -> None: ...


@runtime_checkable
class TakesNotes(Protocol):
    """A tracker that records sentences about a run."""

    def note(self, step: int, text: str, /) -> None: ...


@runtime_checkable
class MarksStates(Protocol):
    """A tracker that names the run, attempt and launch that a state is taken in."""

    def mark(self, step: int, /) -> Mapping[str, Any] | None: ...


@runtime_checkable
class Launches(Protocol):
    """A tracker that opens attempts, and may be told in which one the same loader was recorded before."""

    @property
    def launched(self) -> Mapping[str, Any] | None: ...
    def follow(self, launched: Mapping[str, Any] | None, /) -> None: ...


@runtime_checkable
class TakesValidations(Protocol):
    """A tracker that records what was validated on."""

    def validated(self, step: int, fields: Mapping[str, Any], /) -> None: ...


class Trackers:
    """One tracker, several, or none, notified as one."""

    def __init__(self, tracker: Any) -> None:
        self._all = tuple(tracker) if isinstance(tracker, list | tuple) else () if tracker is None else (tracker,)
        for one in self._all:
            _check(one)

    def __bool__(self) -> bool:
        return bool(self._all)

    def begin(self, step: int, plan: Plan, world: World, loaded: Loaded = None) -> list[Event]:
        """Notify that an iteration starts at a step, and from which state; return the events that the plan lacks."""
        events: list[Event] = []
        for tracker in self._all:
            if isinstance(tracker, BeginsIterations):
                known = tracker.begin(step, plan, world, loaded)
                mine = (*plan.events, *events)
                events += [event for event in known.events if event not in mine] if known is not None else []
        return events

    @property
    def launched(self) -> Mapping[str, Any] | None:
        """The attempt that the first of them opened last; None where none did."""
        found = (tracker.launched for tracker in self._all if isinstance(tracker, Launches))
        return next((launched for launched in found if launched is not None), None)

    def follow(self, launched: Mapping[str, Any] | None) -> None:
        """Notify in which attempt the same loader was recorded before."""
        for tracker in self._all if launched is not None else ():
            if isinstance(tracker, Launches):
                tracker.follow(launched)

    @property
    def want_batches(self) -> bool:
        """Whether any of them records content."""
        return any(getattr(tracker, "wants_batch", False) for tracker in self._all)

    def update(self, bill: Bill | Any, batch: Any) -> None:
        """Notify of what was yielded."""
        for tracker in self._all:
            if getattr(tracker, "wants_batch", False):
                tracker.update(bill, batch)
            else:
                tracker.update(bill)

    def event(self, event: Event) -> None:
        """Notify that the plan changes."""
        for tracker in self._all:
            if isinstance(tracker, TakesEvents):
                tracker.event(event)

    def validated(self, step: int, fields: Mapping[str, Any]) -> None:
        """Notify of a validation before a step."""
        for tracker in self._all:
            if isinstance(tracker, TakesValidations):
                tracker.validated(step, fields)

    def note(self, step: int, text: str) -> None:
        """Have a sentence written down."""
        for tracker in self._all:
            if isinstance(tracker, TakesNotes):
                tracker.note(step, text)

    def flush(self) -> None:
        """Have everything written down."""
        for tracker in self._all:
            tracker.flush()

    def mark(self, step: int) -> Mapping[str, Any] | None:
        """Return the run, attempt and launch that a state before ``step`` is taken in; None without a ledger."""
        marks = (tracker.mark(step) for tracker in self._all if isinstance(tracker, MarksStates))
        return next((mark for mark in marks if mark is not None), None)


def _check(tracker: Any) -> None:
    if isinstance(tracker, str | os.PathLike):
        raise ArgumentError(
            f"tracker is {str(tracker)!r}: expected a ledger, not its folder, because you commit to it. Pass "
            "tracker=lading.Ledger(that), and call its commit(bill) after each update."
        )
    if not isinstance(tracker, Tracker):
        raise ArgumentError(
            f"tracker is {tracker!r}: expected anything with update(bill) and flush(), such as lading.Ledger(folder) "
            "or lading.BatchTracker(); or a list of them."
        )


class Cursor:
    """The position of a loader, in steps.

    Attributes:
        next_step: The first step not yet yielded; what a state speaks of.
        is_iterating: Whether steps after ``next_step`` may have been requested already.
    """

    def __init__(self) -> None:
        self.next_step = 0
        self.is_iterating = False
        self._iteration_step = 0  # a step of the epoch or chunk that the next iteration covers
        self._resuming = False

    def bounds(self, plan: Plan) -> tuple[int, int]:
        """Return the steps ``[first, stop)`` that the next iteration covers."""
        at = plan.locate(self._iteration_step)
        if at.chunk is not None:
            first = plan.chunk_start(at.chunk)
            return first, first + plan.chunk_steps(at.chunk)
        first = plan.epoch_start(at.epoch)
        return first, first + plan.epoch_steps(at.epoch)

    def coming(self, whole: range) -> range:
        """Return the steps that an iteration would yield if it started now, of those that it covers."""
        return whole[self._iteration_step - whole.start :] if self._resuming else whole

    def begin(self, steps: range, whole: range) -> None:
        """Start an iteration over the steps that are left of some."""
        self._iteration_step = whole.start
        self._resuming, self.is_iterating, self.next_step = False, True, steps.start

    def advance(self, step: int, stop: int) -> None:
        """Note that a step's batch is yielded; ``stop`` ends its iteration."""
        self.next_step = step + 1
        if self.next_step == stop:
            self._iteration_step, self.is_iterating = stop, False

    def move_to(self, step: int) -> None:
        """Continue at a step, in the middle of an epoch or chunk if need be."""
        self.next_step = self._iteration_step = step
        self._resuming, self.is_iterating = True, False

    def snapshot(self) -> tuple[int, int, bool, bool]:
        """Return everything there is to know, for ``restore``."""
        return self.next_step, self._iteration_step, self._resuming, self.is_iterating

    def restore(self, snapshot: tuple[int, int, bool, bool]) -> None:
        """Return to where a snapshot was taken."""
        self.next_step, self._iteration_step, self._resuming, self.is_iterating = snapshot


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
