"""From bills and their fates to rows.

deliver ──▶ open row ──commit──▶ settled row, applied ──▶ tail, part
                     ──skip────▶ settled row, skipped
                     ──flush───▶ written as delivered; written again once it is settled (the later row counts)

A batch is named once, when its fate is known or the rank ends. Rows are made of TOGETHER settled batches at once, or
when the thread comes: the first pays for what memory has to fetch, the next find it there. They are looked at as a
reader will: one that no reader would take is left out and named, and the others are written.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill
from lading.identity.hashing import as_signed, digest_of_slots
from lading.ledger.limits import readable
from lading.ledger.packed import Row, RowBytes, joined, layout, packed_names, rows_of, step_of
from lading.ledger.tables import DELIVERED, TABLES
from lading.runtime.fields import LONGEST_TEXT

_BATCHES = layout("batches")
TOGETHER = 32
MOST_OPEN = 4096  # batches whose fate is open; a loader whose batches are never committed must not fill the memory
_WHOLE = ("samples", "row_losses")  # what lies side by side in them belongs to one batch
_at_once = deque[Any](maxlen=0).extend  # goes through an iterator; where that is not Python's, Ctrl-C waits for its end

_Open = tuple[Bill, int, NDArray[np.uint64] | None]  # a batch whose fate is open: bill, time, content
Columns = tuple[int, tuple[Any, ...]]  # rows, and their columns
_Settled = tuple[_Open, tuple[Any, ...], Any]  # batch, what ``_fate_of`` is to know of its fate, losses of its rows


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
        self._settled: list[_Settled] = []
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
        self._pack()
        row = self._open.pop(step)
        if step in self._shown:
            self._shown.remove(step)
        else:
            self._rows["batches"].append(self._fate_of(row, DELIVERED, row[1]))
        self._rows["samples"].append(self._names_of(row))

    def settle(
        self,
        steps: Sequence[int],
        fate: str,
        time: int,
        update: int | None = None,
        loss: Any = None,
        metrics: Mapping[str, Any] | None = None,
        reason: str | None = None,
        row_losses: tuple[Any, ...] | None = None,
    ) -> None:
        """Take what became of delivered steps: of all of them or, where Ctrl-C comes before the end, of none.

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
        found = fate, time, update, loss, metrics, None if reason is None else readable(reason)
        if len(steps) > 1 and not self._open.keys() >= set(steps):
            raise KeyError(steps)
        self._settled.extend(zip(map(self._open.pop, steps), repeat(found), row_losses or repeat(None)))
        if self._shown:
            self._shown.difference_update(steps)
        if len(self._settled) >= TOGETHER:
            self._pack()

    def _pack(self) -> None:
        """Make rows of the batches whose fate is known: of all of them or, where Ctrl-C comes first, of none."""
        if not self._settled:
            return
        fates = [self._fate_of(row, *fate) for row, fate, _ in self._settled]
        names = [self._names_of(row) for row, _, _ in self._settled] if self._names else []
        losses = [
            (r[0].step, partial(_loss_rows, r[0], of_rows)) for r, _, of_rows in self._settled if of_rows is not None
        ]
        tables = self._rows["batches"], self._rows["samples"], self._rows["row_losses"]
        _at_once(chain(map(list.extend, tables, (fates, names, losses)), map(list.clear, (self._settled,))))

    def show_open(self) -> None:
        """Make rows of the batches whose fate is open, too, as delivered; once each."""
        with self.lock:
            self._pack()
            for step, row in self._open.items():
                if step not in self._shown:
                    self._shown.add(step)
                    self._rows["batches"].append(self._fate_of(row, DELIVERED, row[1]))

    def add(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take rows of any table but ``samples`` and ``row_losses``, their values in the columns' order."""
        packed, pack = self._rows[table], layout(table).pack
        for row in rows:
            try:
                packed.append(pack(row))
            except Exception as error:  # a number that is none, a text that is none
                self.leave_out(f"step {row[0]} in {table!r}", error)

    def add_columns(self, table: str, pieces: Iterable[Columns]) -> None:
        """Take rows of a table column by column, as ``Layout.pack_columns`` has them: pieces of so many rows each."""
        made = layout(table)
        for rows, columns in pieces:
            try:
                self._rows[table] += made.pack_columns(rows, columns)
            except Exception:  # one by one: the others are recorded
                self.add(table, rows_of(rows, columns))

    def name_open(self) -> None:
        """Name the batches that will never be used, and forget them."""
        with self.lock:
            self._pack()
            self._rows["samples"].extend(map(self._names_of, self._open.values()))
            self._open = {}

    def take(self) -> dict[str, RowBytes]:
        """Return the rows collected so far by table, and forget them."""
        with self.lock:
            self._pack()
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
            rows = layout(name).apart(rows[0]) if len(rows) == 1 and name not in _WHOLE else rows
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

    def _fate_of(
        self,
        row: _Open,
        fate: str,
        time: int,
        update: int | None = None,
        loss: Any = None,
        metrics: Mapping[str, Any] | None = None,
        reason: str | None = None,
    ) -> Any:
        """Return a row of ``batches``, its columns in order; of numbers on a device its step, and what makes it."""
        bill, _, hashes = row
        try:
            content = None if hashes is None else as_signed(_content_digest(bill, hashes))
            exceptions = _deviations(bill) if bill.deviations else None
            named = bill.position, bill.slots, bill.dataset_idx, bill.idx, bill.is_padding
            digest, samples = digest_of_slots(*named)  # a bill keeps its own, which takes as long again
            place = bill.step, update, bill.epoch, bill.chunk, bill.position, samples, as_signed(digest), content, fate
            found = place, loss, time, metrics, reason, exceptions
            is_here = _is_here(loss) and (metrics is None or all(map(_is_here, metrics.values())))
            return self._packed(*found) if is_here else (bill.step, partial(self._packed, *found))
        except Exception as error:  # the bill is not what a bill should be
            self.leave_out(f"step {bill.step} in 'batches'", error)
            return b""

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

    def _names_of(self, row: _Open) -> Row:
        """Return the rows of ``samples`` of a batch, where they are kept."""
        if not self._names:
            return b""
        bill, _, content = row
        try:
            return packed_names(bill, content)
        except Exception as error:
            self.leave_out(f"step {bill.step} in 'samples'", error)
            return b""


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


@functools.cache
def _hashing() -> Any:
    """Return what hashes content; few ledgers record it."""
    from lading.identity import content

    return content


def _content_digest(bill: Bill, content: NDArray[np.uint64]) -> int:
    found: int = _hashing().digest_of_content(bill.position, bill.slots, content, bill.is_padding)
    return found


def content_of(batch: Any, bill: Bill) -> NDArray[np.uint64]:
    """Return a hash of each row of a batch."""
    found: NDArray[np.uint64] = _hashing().content_hashes(batch, len(bill))
    return found


def _deviations(bill: Bill) -> str:
    from lading.ledger.deviations import deviations_text  # few batches have any

    return deviations_text(bill.deviations)
