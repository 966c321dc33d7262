"""The rows of one rank on their way: to the tail, and full tails to parts.

add ──▶ tail ──(enough rows)──▶ part-000041.parquet ──▶ manifest ──▶ begun ──▶ a new, empty tail
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lading.ledger.begun import CLOSED, RUNNING, Begun, write_begun
from lading.ledger.limits import now_seconds
from lading.ledger.log import sha256_of_bytes
from lading.ledger.manifest import whole_lines
from lading.ledger.packed import RowBytes
from lading.ledger.run_folder import RankFolder
from lading.ledger.tables import FORMATS, TABLES
from lading.ledger.tail import TailWriter
from lading.runtime.files import Journal

if TYPE_CHECKING:
    import pyarrow as pa


def warm_up() -> None:
    """Import what closing a part will import: a thread cannot, once the process ends."""
    import lading.ledger.parts  # noqa: F401 - here: Arrow is opened when the first part is closed


PART_ROWS = {name: found.part_rows for name, found in FORMATS.items()}


class RankStore:
    """Keep the rows of one rank.

    Args:
        folder: The rank's folder; it must be this process's alone.
        begun: What the rank said when it was about to open.
        part_rows: Rows of each table at which a part is closed.
    """

    def __init__(self, folder: RankFolder, begun: Begun, part_rows: dict[str, int] | None = None) -> None:
        self._folder, self._part_rows = folder, {**PART_ROWS, **(part_rows or {})}
        self._held: dict[str, list[RowBytes]] = {name: [] for name in TABLES}
        self._rows = dict.fromkeys(TABLES, 0)  # of what is held: there may be thousands of pieces
        self._part = 0
        self._retry_at = 0
        self._is_behind = True
        self._begun = begun
        self._tail: TailWriter | None = None  # training does not wait for it

    def add(self, tables: Mapping[str, RowBytes]) -> None:
        """Write rows to the tail; all of them or, with an error, none."""
        self.catch_up().append(tables)
        for name, rows in tables.items():
            self._held[name].append(rows)
            self._rows[name] += rows.rows

    def sync(self) -> None:
        """Wait until everything added is on disk."""
        self.catch_up().sync()

    def close_full_part(self) -> None:
        """Close a part, where there are enough rows for one."""
        is_full = any(rows >= self._part_rows[name] for name, rows in self._rows.items())
        if is_full and sum(self._rows.values()) >= self._retry_at:
            self._close_part()

    def close(self, end: str = CLOSED) -> None:
        """Close the last part and say how the rank ended, one of ``ENDS``, and what it stored."""
        from lading.ledger.parts import stored_rows  # here: Arrow is opened when the first part is closed

        last = self._close_part() if any(self._rows.values()) else {}
        stored = stored_rows(self._folder, self._part - bool(last), last)  # the last part need not be read again
        self._begun = replace(self._begun, rows=stored.rows, rows_sha256=stored.sha256)
        Journal(self._folder.manifest).append({"part": self._part, "end": end})
        self._note(end)
        self._folder.tail.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Let go of the files as they are."""
        if self._tail is not None:
            self._tail.close()

    def _close_part(self) -> dict[str, pa.Table]:
        from lading.ledger.parts import close_part, held_rows  # here: Arrow is opened when the first part is closed

        rows = sum(self._rows.values())
        self._retry_at = 2 * rows  # should it fail, the rows are safe in the tail: do not try at every turn
        self.catch_up()
        tables = held_rows(self._held)
        close_part(self._folder, self._part, tables)
        self._part += 1
        self._retry_at, self._is_behind = 0, True
        self._held, self._rows = {name: [] for name in TABLES}, dict.fromkeys(TABLES, 0)
        self.catch_up()
        return tables

    def catch_up(self) -> TailWriter:
        """Return the tail; at first, and after a part, ``begun`` knows of it. Tried again where the disk was full."""
        if self._tail is None:
            self._tail = self._next_tail()
            self._note(RUNNING)  # not before there is a tail
        elif self._is_behind:
            self._note(RUNNING)
            old, self._tail = self._tail, self._next_tail()
            old.close()
        self._is_behind = False
        return self._tail

    def _next_tail(self) -> TailWriter:
        return TailWriter(self._folder.tail, self._part, self._begun.launch, self._folder.rank)

    def _note(self, state: str) -> None:
        lines = whole_lines(self._folder.manifest)
        manifest = sha256_of_bytes(b"".join(lines))
        begun = replace(self._begun, state=state, lines=len(lines), manifest=manifest, time=now_seconds())
        write_begun(self._folder, begun)
        self._begun = begun
