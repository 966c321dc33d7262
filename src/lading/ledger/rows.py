"""From bills and their fates to rows.

deliver ──▶ open row ──commit──▶ settled row, applied ──▶ tail, part
                     ──skip────▶ settled row, skipped
                     ──flush───▶ written as delivered; written again once it is settled (the later row counts)

A batch is named once, when its fate is known or the rank ends. Rows are looked at as a reader will: one that no
reader would take is left out and named, and the others are written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill
from lading.identity.hashing import as_signed, digest_of_slots
from lading.ledger.limits import readable
from lading.ledger.packed import Row, RowBytes, joined, layout, packed_names, step_of
from lading.ledger.tables import DELIVERED, TABLES
from lading.runtime.fields import LONGEST_TEXT

_BATCHES = layout("batches")
MOST_OPEN = 4096  # batches whose fate is open; a loader whose batches are never committed must not fill the memory


_Open = tuple[Bill, int, NDArray[np.uint64] | None]  # a batch whose fate is open: bill, time, content


class Rows:
    """Rows on their way to the disk.

    Training holds ``lock`` while it adds to them; a thread takes them.

    Args:
        record: ``digest``, ``names`` or ``content``.
    """

    def __init__(self, record: str) -> None:
        self.lock = threading.Lock()
        self._names = record != "digest"
        self._open: dict[int, _Open] = {}
        self._rows: dict[str, list[Any]] = {name: [] for name in TABLES}
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
            loss: Its loss: a float, or a tensor that the thread reads.
            metrics: Further such numbers by name.
            reason: Why they were skipped.
            row_losses: Of each step the losses of its rows that count, or None.
        """
        reason = None if reason is None else readable(reason)
        for place, step in enumerate(steps):
            row = self._open[step]
            self._add(row, fate, time, update, loss, metrics, reason)
            self._name(row)
            if row_losses and row_losses[place] is not None:
                self._rows["row_losses"].append((step, partial(_loss_rows, row[0], row_losses[place])))
            del self._open[step]  # not before its row is there: Ctrl-C may come at any time
            self._shown.discard(step)

    def show_open(self) -> None:
        """Make rows of the batches whose fate is open, too, as delivered; once each."""
        with self.lock:
            for step, row in self._open.items():
                if step not in self._shown:
                    self._shown.add(step)
                    self._add(row, DELIVERED, row[1])

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take rows of any table but ``samples`` and ``row_losses``, their values in the columns' order."""
        for row in rows:
            try:
                self._rows[table].append(layout(table).pack(row))
            except Exception as error:  # a number that is none, a text that is none
                self.leave_out(f"step {row[0]} in {table!r}", error)

    def name_open(self) -> None:
        """Name the batches that will never be used, and forget them."""
        with self.lock:
            for row in self._open.values():
                self._name(row)
            self._open = {}

    def take(self) -> dict[str, RowBytes]:
        """Return the rows collected so far by table, and forget them."""
        with self.lock:
            rows, self._rows = self._rows, {name: [] for name in TABLES}
        found = {}
        for name, some in rows.items():
            here = [row if type(row) is bytes else self._waited_for(name, *row) for row in some]
            pieces = self._good(name, [row for row in here if row])  # a batch of padding has no names
            if pieces:
                found[name] = joined(pieces)
        return found

    def take_problems(self) -> list[str]:
        """Return what was left out so far, and forget it."""
        with self.lock:
            problems, self.problems = self.problems, []
        return problems

    def _waited_for(self, name: str, step: int, make: Callable[[], Row]) -> Row:
        """Return a row whose numbers were on a device when it was put."""
        try:
            return make()
        except Exception as error:
            self.leave_out(f"step {step} in {name!r}", error)
            return b""

    def _good(self, name: str, rows: Sequence[Row]) -> list[RowBytes]:
        """Return the rows that a reader would take; the others are looked for, left out and named."""
        if not rows:
            return []
        try:
            return [layout(name).of_rows(rows)]
        except Exception as error:  # whatever is wrong with a row, the next ones are recorded
            if len(rows) == 1:
                self.leave_out(f"step {step_of(rows[0])} in {name!r}", error)
                return []
        half = len(rows) // 2
        return [piece for some in (rows[:half], rows[half:]) for piece in self._good(name, some)]

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
        loss: Any = None,
        metrics: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Make a row of ``batches``: its columns in order."""
        bill, _, hashes = row
        try:
            content = None if hashes is None else as_signed(_content_digest(bill, hashes))
            exceptions = _deviations(bill) if bill.deviations else None
            named = bill.position, bill.slots, bill.dataset_idx, bill.idx, bill.is_padding
            digest, samples = digest_of_slots(*named)  # a bill keeps its own, which takes as long again
            place = bill.step, update, bill.epoch, bill.chunk, bill.position, samples, as_signed(digest), content, fate
            found = place, loss, time, metrics, reason, exceptions
            is_here = _is_here(loss) and (metrics is None or all(map(_is_here, metrics.values())))
            self._rows["batches"].append(
                self._packed(*found) if is_here else (bill.step, partial(self._packed, *found))
            )
        except Exception as error:  # the bill is not what a bill should be
            self.leave_out(f"step {bill.step} in 'batches'", error)

    def _packed(
        self, place: tuple[Any, ...], loss: Any, time: int, metrics: Mapping[str, Any] | None, *texts: str | None
    ) -> Row:
        numbers = self._numbers(metrics) if metrics else None
        return _BATCHES.pack((*place, self._number("loss", loss), time, numbers, *texts))

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
        """Make the rows of ``samples`` of a batch, where they are kept."""
        if not self._names:
            return
        bill, _, content = row
        try:
            self._rows["samples"].append(packed_names(bill, content))
        except Exception as error:
            self.leave_out(f"step {bill.step} in 'samples'", error)


def _is_here(number: Any) -> bool:
    """Say whether a number need not be waited for."""
    return number is None or type(number) is float


def _loss_rows(bill: Bill, losses: Any) -> Row:
    real = bill.is_real
    with np.errstate(over="ignore"):  # what a float of 4 bytes does not hold is infinite
        found = np.array(losses.tolist(), np.float64).astype(np.float32)
    own = bill.slots[real]
    found = found[real] if len(found) == len(bill) else found
    columns = {"step": np.full(len(own), bill.step), "slot": own, "loss": found}
    return layout("row_losses").of_columns(columns).structs


def _content_digest(bill: Bill, content: NDArray[np.uint64]) -> int:
    from lading.identity.content import digest_of_content  # few ledgers record it

    return digest_of_content(bill.position, bill.slots, content, bill.is_padding)


def content_of(batch: Any, bill: Bill) -> NDArray[np.uint64]:
    """Return a hash of each row of a batch."""
    from lading.identity.content import content_hashes  # few ledgers record it

    return content_hashes(batch, len(bill))


def _deviations(bill: Bill) -> str:
    from lading.ledger.deviations import deviations_text  # few batches have any

    return deviations_text(bill.deviations)
