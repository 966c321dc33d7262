"""Which attempt's steps are history, and which were rolled back.

    attempt 0   ├──────────────┤ x                 steps 0..109, killed
    attempt 1             ├─────────┤ x            resumed from 90: 0's steps from 90 on are rolled back
    attempt 2        ├──────────────────▶          resumed from 70: so are 1's, all of them
    history     ├────┼──────────────────▶          each step once: 0..69 of attempt 0, 70.. of attempt 2

A later attempt owns everything from its first step on. An attempt that left
no row rolled nothing back: it is void.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from lading.errors import CorruptLedgerError
from lading.ledger.layout import LEDGER_VERSION, RunFolder


@dataclass(frozen=True)
class Launch:
    """Where an attempt began.

    Attributes:
        attempt: Its number in the run, from 0.
        start_step: The first step it delivers.
        world_size: Number of ranks.
        token: Stands for the launch; equal for the ranks that were started together.
        plan: Fingerprint of the plan, or None where nothing predicts the order.
        events: Plan events in force when it began, as JSON-able fields.
        time: Seconds since 1970.
        host: Machine of the process that opened it.
        process: Id and start time of that process.
        version: ``LEDGER_VERSION`` of the writer.
        lading: Lading's version.
    """

    attempt: int
    start_step: int
    world_size: int
    token: str
    plan: str | None
    events: tuple[dict[str, Any], ...]
    time: float
    host: str
    process: tuple[int, int]
    version: int = LEDGER_VERSION
    lading: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the launch as JSON-able fields."""
        return asdict(self)


@dataclass(frozen=True)
class Span:
    """The steps ``[start, stop)`` of history that one attempt owns; ``stop`` None means to the end."""

    attempt: int
    start: int
    stop: int | None

    def __contains__(self, step: int) -> bool:
        return self.start <= step and (self.stop is None or step < self.stop)


def read_launch(run: RunFolder, attempt: int) -> Launch:
    """Read where an attempt began."""
    path = run.launch(attempt)
    try:
        fields = json.loads(path.read_bytes())
        return Launch(**{**fields, "events": tuple(fields["events"]), "process": tuple(fields["process"])})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLedgerError(
            f"{path} is not what a ledger wrote ({error}). Restore it from a copy; the other attempts stay readable."
        ) from error
    except FileNotFoundError as error:
        raise CorruptLedgerError(
            f"{path} is missing: nobody can say where attempt {attempt} began. Restore it from a copy."
        ) from error


def lineage(starts: Iterable[tuple[int, int]]) -> list[Span]:
    """Return who owns which steps, from (attempt, first step) of every attempt that left rows.

    >>> [(s.attempt, s.start, s.stop) for s in lineage([(0, 0), (1, 90), (2, 70)])]
    [(0, 0, 70), (2, 70, None)]
    """
    spans: list[Span] = []
    end: int | None = None
    for attempt, start in sorted(starts, reverse=True):
        if end is None or start < end:
            spans.append(Span(attempt, start, end))
            end = start
    return spans[::-1]
