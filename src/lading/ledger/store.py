"""The files of one rank in one attempt: rows go to the tail, full tails become parts.

add ──▶ tail ──(enough rows)──▶ part-000041.parquet, manifest ──▶ a new, empty tail
"""

from __future__ import annotations

import pyarrow as pa

from lading.ledger.durable import Journal
from lading.ledger.layout import RankFolder
from lading.ledger.part import close_part
from lading.ledger.schema import SCHEMAS
from lading.ledger.tail import TABLES, TailWriter

PART_ROWS = {"batches": 1 << 16, "samples": 1 << 20}


class RankStore:
    """Keep the rows of one rank.

    Args:
        folder: The rank's folder; it must be this process's alone.
        part_rows: Rows of each table at which a part is closed.
    """

    def __init__(self, folder: RankFolder, part_rows: dict[str, int] | None = None) -> None:
        self._folder, self._part_rows = folder, {**PART_ROWS, **(part_rows or {})}
        self._held: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._part = 0
        self._retry_at = 0
        self._tail = TailWriter(folder.tail, self._part)

    def add(self, name: str, table: pa.Table) -> None:
        """Write rows to the tail; all of them or, with an error, none."""
        self._tail.append(name, table, first_step=table["step"][0].as_py())
        self._held[name].append(table)

    def sync(self) -> None:
        """Wait until everything added is on disk."""
        self._tail.sync()

    def close_full_part(self) -> None:
        """Close a part, where there are enough rows for one."""
        rows = self._rows()
        if sum(rows.values()) >= self._retry_at and any(rows[name] >= self._part_rows[name] for name in TABLES):
            self._close_part()

    def close(self) -> None:
        """Close the last part and say in the manifest that the rank ended in order."""
        if any(self._rows().values()):
            self._close_part()
        Journal(self._folder.manifest).append({"part": self._part, "files": [], "closed": True})
        self._folder.tail.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self._tail.close()

    def _rows(self) -> dict[str, int]:
        return {name: sum(map(len, held)) for name, held in self._held.items()}

    def _close_part(self) -> None:
        rows = sum(self._rows().values())
        self._retry_at = 2 * rows  # should it fail, the rows are safe in the tail: do not try at every turn
        tables = {name: _last_of_each_step(name, held) for name, held in self._held.items() if held}
        close_part(self._folder, self._part, tables)
        self._part += 1
        self._retry_at = 0
        self._held = {name: [] for name in TABLES}
        old, self._tail = self._tail, TailWriter(self._folder.tail, self._part)
        old.close()


def _last_of_each_step(name: str, held: list[pa.Table]) -> pa.Table:
    """Return the rows, of batches only the last of each step: it knows the fate."""
    table = pa.concat_tables(held).combine_chunks()
    if name == "samples" or not len(table):
        return table.cast(SCHEMAS[name])
    last = {step: row for row, step in enumerate(table["step"].to_pylist())}
    return table if len(last) == len(table) else table.take(sorted(last.values()))
