"""From bills and their fates to rows.

deliver ──▶ open row ──commit──▶ settled row, applied ──▶ tail, part
                     ──skip────▶ settled row, skipped
                     ──flush───▶ written as delivered; written again once it is settled (the later row counts)

A batch is named once, when its fate is known or the rank ends. Rows are looked at as a reader will: one that no
reader would take is left out and named, and the others are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import LedgerError
from lading.identity import Bill, digest, total_digest
from lading.identity.digest import as_signed
from lading.identity.hashing import fold
from lading.ledger.deviations import deviations_text
from lading.ledger.limits import readable
from lading.ledger.schema import DELIVERED, SAMPLES, SCHEMAS, typed
from lading.runtime.fields import LONGEST_TEXT
from lading.runtime.numbers import whole

_NO_METRICS: Mapping[str, Any] = {}
MOST_OPEN = 4096  # batches whose fate is open; a loader whose batches are never committed must not fill the memory


@dataclass(slots=True)
class _Open:
    """A batch whose fate is open."""

    bill: Bill
    time: int
    content: NDArray[np.uint64] | None
    named: bool = False


class Fate(NamedTuple):
    """What became of some steps.

    Attributes:
        steps: Which.
        fate: ``applied`` or ``skipped``.
        time: When, in milliseconds since 1970.
        update: Number of the optimizer update that used them.
        loss: Its loss; anything ``float`` understands.
        metrics: Further numbers by name.
        reason: Why they were skipped.
    """

    steps: tuple[int, ...]
    fate: str
    time: int
    update: int | None = None
    loss: Any = None
    metrics: Mapping[str, Any] = _NO_METRICS
    reason: str | None = None


class Rows:
    """Rows on their way to the disk.

    Args:
        record: ``digest``, ``names`` or ``content``.
    """

    def __init__(self, record: str) -> None:
        self._names = record != "digest"
        self._open: dict[int, _Open] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._samples: list[_Open] = []
        self._events: list[tuple[int, str, str, int]] = []
        self._shown: set[int] = set()
        self.problems: list[str] = []
        self._last = -1

    def deliver(self, bill: Bill, time: int, content: NDArray[np.uint64] | None) -> None:
        """Take a batch that left the loader; the same step again replaces it, and the steps after it are forgotten."""
        if bill.step <= self._last:
            for step in [s for s in self._open if s >= bill.step]:
                del self._open[step]
                self._shown.discard(step)
        self._last = bill.step
        self._open[bill.step] = _Open(bill, time, content)
        if len(self._open) > MOST_OPEN:
            self._give_up(next(iter(self._open)))

    def _give_up(self, step: int) -> None:
        """Write a batch as delivered that was not used for so long."""
        row = self._open.pop(step)
        if step in self._shown:
            self._shown.remove(step)
        else:
            self._add(row, Fate((step,), DELIVERED, row.time))
        self._name(row)

    def settle(self, fate: Fate) -> None:
        """Take what became of delivered steps."""
        loss = self._number("loss", fate.loss)
        numbers = {readable(name, LONGEST_TEXT): self._number(name, value) for name, value in fate.metrics.items()}
        metrics = {name: number for name, number in numbers.items() if number is not None}
        reason = None if fate.reason is None else readable(fate.reason)
        settled = fate._replace(loss=loss, metrics=metrics, reason=reason)
        for step in fate.steps:
            row = self._open.pop(step)
            self._shown.discard(step)
            self._add(row, settled)
            self._name(row)

    def show_open(self) -> None:
        """Make rows of the batches whose fate is open, too, as delivered; once each."""
        for step, row in self._open.items():
            if step not in self._shown:
                self._shown.add(step)
                self._add(row, Fate((step,), DELIVERED, row.time))

    def event(self, step: int, kind: str, text: str, time: int) -> None:
        """Take something that happened to the order: a change of the plan, a jump, a checkpoint inside an update."""
        self._events.append((step, kind, text, time))

    def name_open(self) -> None:
        """Name the batches that will never be used."""
        for row in self._open.values():
            self._name(row)

    def take(self) -> dict[str, pa.Table]:
        """Return the rows collected so far by table, and forget them."""
        samples, rows, events = self._samples, self._rows, self._events
        self._samples, self._rows, self._events = [], [], []
        tables = {
            "samples": self._table("samples", samples, _samples_table, lambda row: row.bill.step),
            "batches": self._table("batches", rows, lambda some: _table_of("batches", some), lambda row: row[0]),
            "events": self._table("events", events, lambda some: _table_of("events", some), lambda row: row[0]),
        }
        return {name: table for name, table in tables.items() if len(table)}  # a batch of padding has no names

    def _table(
        self, name: str, rows: Sequence[Any], make: Callable[[Any], pa.Table], step_of: Callable[[Any], int]
    ) -> pa.Table:
        """Return the rows that a reader would take; the others are looked for, left out and named."""
        if not rows:
            return SCHEMAS[name].empty_table()
        try:
            return typed(make(rows), name)
        except Exception as error:  # whatever is wrong with a row, the next ones are recorded
            if len(rows) == 1:
                self.leave_out(f"step {step_of(rows[0])} in {name!r}", error)
                return SCHEMAS[name].empty_table()
        half = len(rows) // 2
        return pa.concat_tables([self._table(name, some, make, step_of) for some in (rows[:half], rows[half:])])

    def leave_out(self, what: str, error: Exception) -> None:
        """Name something that is not recorded, and why."""
        self.problems.append(
            f"{what} is left out of the ledger: {type(error).__name__}: {readable(error, LONGEST_TEXT)}. What follows "
            "is recorded, and `lading verify` names the gap."
        )

    def _add(self, row: _Open, fate: Fate) -> None:
        try:
            self._rows.append(_row(row, fate))
        except Exception as error:  # the bill is not what a bill should be
            self.leave_out(f"step {row.bill.step} in 'batches'", error)

    def _number(self, name: str, value: Any) -> float | None:
        if value is None or type(value) is float:
            return value
        try:
            return float(value.item() if hasattr(value, "item") else value)
        except Exception as error:  # a tensor on a lost device raises what it likes; the row is kept without it
            self.problems.append(
                f"{name} cannot be read as a number ({error}) and is left out of the ledger. "
                "Commit numbers, or tensors of one number."
            )
            return None

    def _name(self, row: _Open) -> None:
        if self._names and not row.named:
            row.named = True
            self._samples.append(row)


def checked_number(name: str, value: Any) -> Any:
    """Return a number as a float, a tensor of one number as it is (it is read in the background); refuse the rest."""
    if value is None or type(value) is float:
        return value
    try:
        if isinstance(value, int | float | np.number | np.bool_):
            return float(value)
        is_single = hasattr(value, "__float__") and math.prod(getattr(value, "shape", ())) == 1
    except (OverflowError, TypeError):
        is_single = False
    if not is_single:
        shown = f"{type(value).__name__}{list(value.shape) if hasattr(value, 'shape') else ''}"
        raise LedgerError(
            f"{name} of a commit is {shown}: expected a number, or a tensor of one number. Pass each metric by its own "
            "name: ledger.commit(bill, loss=loss, lr=lr)."
        )
    return value.detach() if hasattr(value, "detach") else value  # do not keep the graph alive


def checked_update(update: Any) -> int | None:
    """Return the number of an update; refuse what is none."""
    number = whole(update)
    if update is not None and (number is None or not 0 <= number < 1 << 63):
        raise LedgerError(
            f"update of a commit is {update!r}: expected the number of the optimizer update, from 0. "
            "Leave it out if there is none."
        )
    return number


def warm_up() -> None:
    """Import what making rows will import (Numba, and pandas for pyarrow): a thread cannot, once the process ends."""
    pa.array([0])
    digest(*[np.zeros(1, dtype=np.int64)] * 3)


def _row(row: _Open, fate: Fate) -> tuple[Any, ...]:
    bill = row.bill
    content = None if row.content is None else as_signed(total_digest(_placed(bill, row.content).tolist()))
    exceptions = deviations_text(bill.deviations) if bill.deviations else None
    place = (bill.step, fate.update, bill.epoch, bill.chunk, bill.position, bill.num_samples)
    metrics = list(fate.metrics.items()) or None
    return (
        *place,
        as_signed(bill.digest),
        content,
        fate.fate,
        fate.loss,
        fate.time,
        metrics,
        fate.reason,
        exceptions,
    )


def _table_of(name: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    schema = SCHEMAS[name]
    return pa.Table.from_arrays([pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _placed(bill: Bill, content: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the content of the rows that count, bound to their place: content digests add like digests."""
    real = bill.is_real
    return fold((bill.position + bill.slots[real]).astype(np.uint64), content[real])


def _samples_table(rows: list[_Open]) -> pa.Table:
    real = [row.bill.is_real for row in rows]
    steps = np.repeat([row.bill.step for row in rows], [row.bill.num_samples for row in rows])
    slots = np.concatenate([row.bill.slots[r] for row, r in zip(rows, real, strict=True)])
    datasets = np.concatenate([row.bill.dataset_idx[r] for row, r in zip(rows, real, strict=True)])
    indices = np.concatenate([row.bill.idx[r] for row, r in zip(rows, real, strict=True)])
    content = pa.nulls(len(steps), pa.int64())
    if all(row.content is not None for row in rows):
        parts = [row.content[r].view(np.int64) for row, r in zip(rows, real, strict=True) if row.content is not None]
        content = pa.array(np.concatenate(parts))
    arrays = [
        pa.array(steps.astype(np.int64)),
        pa.array(slots.astype(np.int32)),
        pa.array(datasets.astype(np.int32)),
        pa.array(indices.astype(np.int64)),
        content,
    ]
    return pa.Table.from_arrays(arrays, schema=SAMPLES)
