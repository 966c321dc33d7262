"""From bills and their fates to rows.

deliver ──▶ open row ──commit──▶ settled row, applied ──▶ tail, part
                     ──skip────▶ settled row, skipped
                     ──flush───▶ written as delivered; written again once it is settled (the later row counts)

A batch is named once, when its fate is known or the rank ends.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import LedgerError
from lading.identity import Bill, digest, total_digest
from lading.identity.digest import as_signed
from lading.identity.hashing import fold
from lading.ledger.schema import BATCHES, DELIVERED, EVENTS, SAMPLES
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
            self._rows.append(_row(row, DELIVERED, row.time, None, None, None, None))
        self._name(row)

    def settle(self, fate: Fate) -> None:
        """Take what became of delivered steps."""
        loss = self._number("loss", fate.loss)
        numbers = [(name, self._number(name, value)) for name, value in fate.metrics.items()]
        metrics = [(name, number) for name, number in numbers if number is not None] or None
        for step in fate.steps:
            row = self._open.pop(step)
            self._shown.discard(step)
            self._rows.append(_row(row, fate.fate, fate.time, fate.update, loss, metrics, fate.reason))
            self._name(row)

    def show_open(self) -> None:
        """Make rows of the batches whose fate is open, too, as delivered; once each."""
        for step, row in self._open.items():
            if step not in self._shown:
                self._shown.add(step)
                self._rows.append(_row(row, DELIVERED, row.time, None, None, None, None))

    def event(self, step: int, kind: str, fields: Mapping[str, Any], time: int) -> None:
        """Take something that happened to the order: a change of the plan, a jump, a checkpoint inside an update."""
        self._events.append((step, kind, json.dumps(fields, separators=(",", ":")), time))

    def name_open(self) -> None:
        """Name the batches that will never be used."""
        for row in self._open.values():
            self._name(row)

    def take(self) -> dict[str, pa.Table]:
        """Return the rows collected so far by table, and forget them."""
        tables = {}
        if self._samples:
            tables["samples"] = _samples_table(self._samples)
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, type=f.type) for column, f in zip(columns, BATCHES, strict=True)]
            tables["batches"] = pa.Table.from_arrays(arrays, schema=BATCHES)
        if self._events:
            columns = zip(*self._events, strict=True)
            arrays = [pa.array(column, type=f.type) for column, f in zip(columns, EVENTS, strict=True)]
            tables["events"] = pa.Table.from_arrays(arrays, schema=EVENTS)
        self._samples, self._rows, self._events = [], [], []
        return tables

    def _number(self, name: str, value: Any) -> float | None:
        if value is None or type(value) is float:
            return value
        try:
            return float(value.item() if hasattr(value, "item") else value)
        except Exception as error:  # a tensor on a lost device raises what it likes; the row is kept without it
            self.problems.append(f"{name} cannot be read as a number ({error}) and is left out of the ledger")
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


def _row(
    row: _Open,
    fate: str,
    time: int,
    update: int | None,
    loss: float | None,
    metrics: list[tuple[str, float]] | None,
    reason: str | None,
) -> tuple[Any, ...]:
    bill = row.bill
    content = None if row.content is None else as_signed(total_digest(_placed(bill, row.content).tolist()))
    exceptions = json.dumps([asdict(d) for d in bill.deviations]) if bill.deviations else None
    place = (bill.step, update, bill.epoch, bill.chunk, bill.position, bill.num_samples)
    return (*place, as_signed(bill.digest), content, fate, loss, time, metrics, reason, exceptions)


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
