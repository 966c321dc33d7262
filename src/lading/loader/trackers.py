"""Those who are told what a loader hands out: trackers, ledgers, or several of them.

update(bill)                             every batch, the moment it is handed out
flush()                                  before a state is taken, so that no checkpoint is ahead of the record
begin(step, plan, world, loaded) → plan  optional: an iteration starts; a ledger may know of samples blocked since
mark(step) → {run, attempt, launch}      optional, after flush(): which run, attempt and launch a state is taken in
event(event)                             optional: the plan changes from a step on
update(bill, batch)                      where ``wants_batch`` is True: content is recorded too

``loaded`` is what the loader resumed from and has not iterated past yet: ``run``, ``attempt``, ``launch`` and ``step``
of the state, or None where no state was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from lading.identity import Bill, World
from lading.order import Event, Plan


@runtime_checkable
class Tracker(Protocol):
    """What every tracker has."""

    def update(self, bill: Any, /) -> None: ...
    def flush(self) -> None: ...


@runtime_checkable
class BeginsIterations(Protocol):
    """A tracker that wants to know where an iteration starts, and may change the plan for it."""

    def begin(self, step: int, plan: Plan | None, world: World, loaded: Mapping[str, Any] | None) -> Plan | None: ...


@runtime_checkable
class MarksStates(Protocol):
    """A tracker that names the run, attempt and launch that a state is taken in."""

    def mark(self, step: int, /) -> Mapping[str, Any] | None: ...


@runtime_checkable
class TakesEvents(Protocol):
    """A tracker that records changes of the plan."""

    def event(self, event: Event, /) -> None: ...


class Trackers:
    """One tracker, several, or none, told as one."""

    def __init__(self, tracker: Any) -> None:
        self._all = tuple(tracker) if isinstance(tracker, list | tuple) else () if tracker is None else (tracker,)

    def begin(self, step: int, plan: Plan, world: World, loaded: Mapping[str, Any] | None = None) -> Plan:
        """Notify that an iteration starts at a step, and from which state; return the plan to follow."""
        for tracker in self._all:
            if isinstance(tracker, BeginsIterations):
                plan = tracker.begin(step, plan, world, loaded) or plan
        return plan

    def mark(self, step: int) -> Mapping[str, Any] | None:
        """Return the run, attempt and launch that a state before ``step`` is taken in; None without a ledger."""
        marks = (tracker.mark(step) for tracker in self._all if isinstance(tracker, MarksStates))
        return next((mark for mark in marks if mark is not None), None)

    def update(self, bill: Bill, batch: Any) -> None:
        """Tell what was handed out."""
        for tracker in self._all:
            if getattr(tracker, "wants_batch", False):
                tracker.update(bill, batch)
            else:
                tracker.update(bill)

    def event(self, event: Event) -> None:
        """Tell that the plan changes."""
        for tracker in self._all:
            if isinstance(tracker, TakesEvents):
                tracker.event(event)

    def flush(self) -> None:
        """Have everything written down."""
        for tracker in self._all:
            tracker.flush()
