"""Those who are notified of what a loader yields: trackers, ledgers, or several of them.

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
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from lading.errors import ArgumentError
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
