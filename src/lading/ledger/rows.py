"""From bills and their fates to rows.

deliver ──▶ open row ──commit──▶ settled row, applied ──▶ tail, part
                     ──skip────▶ settled row, skipped
                     ──flush───▶ written as delivered; written again once it is settled (the later row counts)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.identity import Bill, digest, total_digest
from lading.identity.digest import as_signed
from lading.identity.hashing import fold
from lading.ledger.schema import BATCHES, DELIVERED, SAMPLES

MOST_OPEN = 4096  # batches whose fate is open; a loader whose batches nobody ever commits must not fill the memory


@dataclass
class _Open:
    """A batch whose fate is open."""

    bill: Bill
    time: int
    content: NDArray[np.uint64] | None
    named: bool = False


@dataclass(frozen=True)
class Fate:
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
    metrics: Mapping[str, Any] = field(default_factory=dict)
    reason: str | None = None


class Rows:
    """Rows on their way to the disk.

    Args:
        record: ``digest``, ``names`` or ``content``.
        planned: Whether a plan predicts the names, so that a batch not yet used need not be named.
    """

    def __init__(self, record: str, *, planned: bool) -> None:
        self._names, self._planned = record != "digest", planned
        self._open: dict[int, _Open] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._samples: list[_Open] = []
        self._shown: set[int] = set()
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
        """Write a batch as delivered that nobody used for so long."""
        row = self._open.pop(step)
        if step in self._shown:
            self._shown.remove(step)
        else:
            self._rows.append(_row(row, DELIVERED, row.time, None, None, None, None))
        self._name(row)

    def settle(self, fate: Fate) -> None:
        """Take what became of delivered steps."""
        loss = None if fate.loss is None else float(fate.loss)
        metrics = [(name, float(value)) for name, value in fate.metrics.items()] or None
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
                if not self._planned:
                    self._name(row)

    def name_open(self) -> None:
        """Name the batches that will never be used: nobody will come for them any more."""
        for row in self._open.values():
            self._name(row)

    def take(self) -> dict[str, pa.Table]:
        """Return the rows collected so far, names first, and forget them."""
        tables = {}
        if self._samples:
            tables["samples"] = _samples_table(self._samples)
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, type=f.type) for column, f in zip(columns, BATCHES, strict=True)]
            tables["batches"] = pa.Table.from_arrays(arrays, schema=BATCHES)
        self._samples, self._rows = [], []
        return tables

    def _name(self, row: _Open) -> None:
        if self._names and not row.named:
            row.named = True
            self._samples.append(row)


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
