"""What happened to the order of an attempt: rows of rank 0's table ``events``.

reweight · rebatch · block · rescore · choose
                              the plan changed from a step on; undone with its attempt's later steps
jump                          the loader passed steps over
validated                     what was measured after a chunk, and on which steps of which plan
pending                       a state was taken while delivered batches waited for their update
note                          a sentence about this attempt, which ``verify`` repeats
mask                          from a step on the tokens of some documents are padding; the order stays as it is
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lading.errors import CorruptLedgerError, LadingError, LedgerError
from lading.ledger.launch import Range, ranges
from lading.ledger.limits import LONGEST_REASON
from lading.ledger.run_folder import RankFolder
from lading.order.event import Event, event_from_dict
from lading.runtime.fields import COUNT, Fields, FieldTable, Origin, given, optional

if TYPE_CHECKING:
    import pyarrow as pa

PLAN_KINDS = ("reweight", "rebatch", "block", "rescore", "choose")
JUMP, PENDING, VALIDATED, NOTE, MASK = OTHER_KINDS = ("jump", "pending", "validated", "note", "mask")


@dataclass(frozen=True)
class EventRow:
    """One row.

    Attributes:
        step: The step it acts from; of ``pending`` the step of the state.
        kind: What it is.
        fields: What it says.
        time: When, in milliseconds since 1970.
    """

    step: int
    kind: str
    fields: dict[str, Any]
    time: int

    @property
    def plan_event(self) -> Event | None:
        """The change of the plan, where it is one."""
        return event_from_dict(self.fields) if self.kind in PLAN_KINDS else None

    @property
    def pending(self) -> tuple[Range, ...]:
        """Ranges of the steps that waited for their update."""
        return tuple((first, stop) for first, stop in self.fields.get("steps", ()))


def event_rows(folder: RankFolder, tables: Iterable[pa.Table]) -> list[EventRow]:
    """Return the rows of some tables, every field checked."""
    found = []
    for row in (row for table in tables for row in table.to_pylist()):
        origin = Origin(f"{folder.path}: event at step {row['step']}", CorruptLedgerError, "Run `lading verify`.")
        fields = origin.record(row["event"] or "")
        time = int(row["time"].timestamp() * 1000) if row["time"] is not None else 0
        event = EventRow(row["step"], str(row["kind"]), dict(fields._values), time)
        try:
            _check(event, fields)
        except CorruptLedgerError:
            raise
        except LadingError as error:
            raise CorruptLedgerError(f"{origin.file}: {error}") from error
        found.append(event)
    return found


def event_text(step: int, kind: str, fields: Mapping[str, Any]) -> str:
    """Return what an event says as its row holds it; refuse what no reader would take."""
    text = json.dumps(fields, separators=(",", ":"))
    read = Origin(f"{kind} at step {step}", LedgerError, "It is not recorded.").record(text)
    _check(EventRow(step, kind, dict(read._values), 0), read)
    return text


def _check(event: EventRow, fields: Fields) -> None:
    if event.kind in PLAN_KINDS:
        event_from_dict(event.fields)
    elif event.kind == JUMP:
        fields.integer("from", low=0)
    elif event.kind == PENDING:
        ranges(fields, "steps")
    elif event.kind == VALIDATED:
        _check_validated(fields)
    elif event.kind == NOTE:
        fields.each({"text": Fields.text})
    elif event.kind == MASK:
        fields.each(_MASK)
    else:
        fields.origin.refuse("kind", f"one of {', '.join((*PLAN_KINDS, *OTHER_KINDS))}", repr(event.kind)[:80])


_MASK: FieldTable = {
    "dataset": COUNT,
    "documents": partial(Fields.integers, low=0, least=1),
    "reason": optional(Fields.text, "", longest=LONGEST_REASON),
}


def _check_validated(fields: Fields) -> None:
    fields.each({"metric": given(Fields.number), "loss": given(Fields.number), "on": Fields.record})
    on = fields.record("on")
    if len(on):
        on.each({"plan": Fields.text, "chunk": COUNT, "first_step": COUNT, "stop_step": COUNT})


def pending_at(folder: RankFolder, step: int) -> tuple[Range, ...]:
    """Return the steps that waited for their update when the newest state before a step was taken."""
    from lading.ledger.parts import rows_of  # here: what continues nothing opens no Arrow

    rows = event_rows(folder, rows_of(folder, "events"))
    return next((row.pending for row in reversed(rows) if row.kind == PENDING and row.step == step), ())
