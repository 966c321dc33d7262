"""Those who are notified of what a loader yields: trackers, ledgers, or several of them.

    update(bill)                       every batch, the moment it is yielded
    update(bill, batch)                where ``wants_batch`` is True: content is recorded too
    flush()                            before a state is taken, so that no checkpoint is ahead of the record
    begin(step, plan, world, loaded) → plan
                                       optional: an iteration starts; a ledger may know of samples blocked since
    event(event)                       optional: the plan changes from a step on
    mark(step) → {run, attempt, launch}
                                       optional, after flush(): what a state taken before a step says of its run

``loaded`` is what the loader resumed from and has not iterated past yet: ``run``, ``attempt``, ``launch`` and ``step``
of the state, or None where no state was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from lading.identity import Bill, World
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
class MarksStates(Protocol):
    """A tracker that names the run, attempt and launch that a state is taken in."""

    def mark(self, step: int, /) -> Mapping[str, Any] | None: ...


@runtime_checkable
class TakesValidations(Protocol):
    """A tracker that records what was validated on."""

    def validated(self, step: int, fields: Mapping[str, Any], /) -> None: ...


class Trackers:
    """One tracker, several, or none, notified as one."""

    def __init__(self, tracker: Any) -> None:
        self._all = tuple(tracker) if isinstance(tracker, list | tuple) else () if tracker is None else (tracker,)

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

    def flush(self) -> None:
        """Have everything written down."""
        for tracker in self._all:
            tracker.flush()

    def mark(self, step: int) -> Mapping[str, Any] | None:
        """Return the run, attempt and launch that a state before ``step`` is taken in; None without a ledger."""
        marks = (tracker.mark(step) for tracker in self._all if isinstance(tracker, MarksStates))
        return next((mark for mark in marks if mark is not None), None)
