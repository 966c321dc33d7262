"""From bills and their fates to rows.

deliver ──▶ open row ──commit──▶ settled row, applied ──▶ tail, part
                     ──skip────▶ settled row, skipped
                     ──flush───▶ written as delivered; written again once it is settled (the later row counts)

A batch is named once, when its fate is known or the rank ends. Rows are looked at as a reader will: one that no
reader would take is left out and named, and the others are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill
from lading.identity.hashing import as_signed, digest_of_slots
from lading.ledger.limits import readable
from lading.ledger.packed import Row, RowBytes, joined, layout, step_of
from lading.ledger.tables import DELIVERED, TABLES
from lading.runtime.fields import LONGEST_TEXT

_BATCHES = layout("batches")
MOST_OPEN = 4096  # batches whose fate is open; a loader whose batches are never committed must not fill the memory


_Open = tuple[Bill, int, NDArray[np.uint64] | None]  # a batch whose fate is open: bill, time, content


class Rows:
    """Rows on their way to the disk.

    Args:
        record: ``digest``, ``names`` or ``content``.
    """

    def __init__(self, record: str) -> None:
        self._names = record != "digest"
        self._open: dict[int, _Open] = {}
        self._samples: list[_Open] = []
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES}
        self._pieces: dict[str, list[RowBytes]] = {name: [] for name in TABLES}
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
        self._open[bill.step] = bill, time, content
        if len(self._open) > MOST_OPEN:
            self._give_up(next(iter(self._open)))

    def _give_up(self, step: int) -> None:
        """Write a batch as delivered that was not used for so long."""
        row = self._open.pop(step)
        if step in self._shown:
            self._shown.remove(step)
        else:
            self._add(row, DELIVERED, row[1])
        self._name(row)

    def settle(
        self,
        steps: tuple[int, ...],
        fate: str,
        time: int,
        update: int | None = None,
        loss: Any = None,
        metrics: Mapping[str, Any] | None = None,
        reason: str | None = None,
        row_losses: tuple[Any, ...] | None = None,
    ) -> None:
        """Take what became of delivered steps.

        Args:
            steps: Which.
            fate: ``applied`` or ``skipped``.
            time: When, in milliseconds since 1970.
            update: Number of the optimizer update that used them.
            loss: Its loss; anything ``float`` understands.
            metrics: Further numbers by name.
            reason: Why they were skipped.
            row_losses: Of each step the losses of its rows that count, or None.
        """
        loss = self._number("loss", loss)
        numbers = self._numbers(metrics) if metrics else None
        reason = None if reason is None else readable(reason)
        rows = [self._open.pop(step) for step in steps]
        for row in rows:
            self._shown.discard(row[0].step)
            self._add(row, fate, time, update, loss, numbers, reason)
            self._name(row)
        for step, row, losses in zip(steps, rows, row_losses, strict=True) if row_losses else ():
            if losses is not None:
                self._pieces["row_losses"] += self._good("row_losses", [(step, row[0], losses)], _loss_rows, _first)

    def show_open(self) -> None:
        """Make rows of the batches whose fate is open, too, as delivered; once each."""
        for step, row in self._open.items():
            if step not in self._shown:
                self._shown.add(step)
                self._add(row, DELIVERED, row[1])

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take rows of any table but ``samples``, their values in the columns' order."""
        for row in rows:
            try:
                self._rows[table].append(layout(table).pack(row))
            except Exception as error:  # a number that is none, a text that is none
                self.leave_out(f"step {row[0]} in {table!r}", error)

    def name_open(self) -> None:
        """Name the batches that will never be used, and forget them."""
        for row in self._open.values():
            self._name(row)
        self._open = {}

    def take(self) -> dict[str, RowBytes]:
        """Return the rows collected so far by table, and forget them."""
        samples, rows, pieces = self._samples, self._rows, self._pieces
        self._samples, self._rows, self._pieces = [], {name: [] for name in TABLES}, {name: [] for name in TABLES}
        pieces["samples"] += self._good("samples", samples, _samples_rows, lambda row: row[0].step)
        for name, some in rows.items():
            pieces[name] += self._good(name, some, layout(name).of_rows, step_of)
        found = {name: joined(some) for name, some in pieces.items() if some}
        return {name: some for name, some in found.items() if some.rows}  # a batch of padding has no names

    def _good(
        self, name: str, rows: Sequence[Any], make: Callable[[Any], RowBytes], step_of: Callable[[Any], int]
    ) -> list[RowBytes]:
        """Return the rows that a reader would take; the others are looked for, left out and named."""
        if not rows:
            return []
        try:
            return [make(rows)]
        except Exception as error:  # whatever is wrong with a row, the next ones are recorded
            if len(rows) == 1:
                self.leave_out(f"step {step_of(rows[0])} in {name!r}", error)
                return []
        half = len(rows) // 2
        return [piece for some in (rows[:half], rows[half:]) for piece in self._good(name, some, make, step_of)]

    def leave_out(self, what: str, error: Exception) -> None:
        """Name something that is not recorded, and why."""
        self.problems.append(
            f"{what} is left out of the ledger: {type(error).__name__}: {readable(error, LONGEST_TEXT)}. What follows "
            "is recorded, and `lading verify` names the gap."
        )

    def _add(
        self,
        row: _Open,
        fate: str,
        time: int,
        update: int | None = None,
        loss: float | None = None,
        metrics: list[tuple[str, float]] | None = None,
        reason: str | None = None,
    ) -> None:
        """Make a row of ``batches``: its columns in order."""
        bill, _, hashes = row
        try:
            content = None if hashes is None else as_signed(int(_placed(bill, hashes).sum(dtype=np.uint64)))
            exceptions = _deviations(bill) if bill.deviations else None
            named = bill.position, bill.slots, bill.dataset_idx, bill.idx, bill.is_padding
            digest, samples = digest_of_slots(*named)  # a bill keeps its own, which takes as long again
            place = bill.step, update, bill.epoch, bill.chunk, bill.position, samples, as_signed(digest)
            found = (*place, content, fate, loss, time, metrics, reason, exceptions)
            self._rows["batches"].append(_BATCHES.pack(found))
        except Exception as error:  # the bill is not what a bill should be
            self.leave_out(f"step {bill.step} in 'batches'", error)

    def _numbers(self, metrics: Mapping[str, Any]) -> list[tuple[str, float]] | None:
        found = {readable(name, LONGEST_TEXT): self._number(name, value) for name, value in metrics.items()}
        return [(name, number) for name, number in found.items() if number is not None] or None

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
        if self._names:
            self._samples.append(row)


def _first(row: tuple[int, Bill, Any]) -> int:
    return row[0]


def _loss_rows(rows: Sequence[tuple[int, Bill, Any]]) -> RowBytes:
    (step, bill, losses), real = rows[0], rows[0][1].is_real
    with np.errstate(over="ignore"):  # what a float of 4 bytes does not hold is infinite
        found = np.array(losses.tolist(), np.float64).astype(np.float32)
    own = bill.slots[real]
    found = found[real] if len(found) == len(bill) else found
    return layout("row_losses").of_columns({"step": np.full(len(own), step), "slot": own, "loss": found})


def _placed(bill: Bill, content: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the content of the rows that count, bound to their place: content digests add like digests."""
    from lading.identity.content import folded  # few ledgers record it

    positions = bill.position + _counted(bill, bill.slots)
    return folded(positions.astype(np.uint64), [(None, _counted(bill, content))])


def _counted(bill: Bill, column: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of a column that count: all of them, as a rule."""
    return column if bill.num_samples == len(column) else column[bill.is_real]


def content_of(batch: Any, bill: Bill) -> NDArray[np.uint64]:
    """Return a hash of each row of a batch."""
    from lading.identity.content import content_hashes  # few ledgers record it

    return content_hashes(batch, len(bill))


def _deviations(bill: Bill) -> str:
    from lading.ledger.deviations import deviations_text  # few batches have any

    return deviations_text(bill.deviations)


def _samples_rows(rows: Sequence[_Open]) -> RowBytes:
    bills = [bill for bill, _, _ in rows]
    columns = {
        "step": np.repeat([bill.step for bill in bills], [bill.num_samples for bill in bills]),
        "slot": np.concatenate([_counted(bill, bill.slots) for bill in bills]),
        "dataset": np.concatenate([_counted(bill, bill.dataset_idx) for bill in bills]),
        "index": np.concatenate([_counted(bill, bill.idx) for bill in bills]),
    }
    hashed = [_counted(bill, content).view(np.int64) for bill, _, content in rows if content is not None]
    if len(hashed) == len(rows):
        columns["content"] = np.concatenate(hashed)
    return layout("samples").of_columns(columns)
