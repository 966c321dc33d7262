"""Closed parts: Parquet files that never change, and the manifest that knows each by its SHA-256.

    rows ──▶ written aside ──▶ renamed to part-000041.parquet ──▶ a line in manifest.jsonl

A part without its line does not exist: its rows are still in the tail.

The files of one rank in one attempt: rows go to the tail, full tails become parts.

add ──▶ tail ──(enough rows)──▶ part-000041.parquet, manifest ──▶ a new, empty tail
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lading.ledger.run_folder import RankFolder
from lading.ledger.schema import DELIVERED, SCHEMAS, write_table
from lading.ledger.tail import TABLES, TailWriter
from lading.runtime.files import Journal, written_aside

_BLOCK = 1 << 20


@dataclass(frozen=True)
class PartFile:
    """One closed file, as its manifest knows it.

    Attributes:
        file: Its name.
        table: ``batches`` or ``samples``.
        rows: Rows in it.
        first_step: Smallest step in it.
        last_step: Largest step in it.
        exceptions: Batches in it with exceptions to the plan: readers open no file that has none to look for them.
        undecided: Batches in it whose fate was open when it was closed; a later row may know more.
        size: Bytes.
        sha256: Of the whole file.
    """

    file: str
    table: str
    rows: int
    first_step: int
    last_step: int
    exceptions: int
    undecided: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """The files that were closed together."""

    number: int
    files: tuple[PartFile, ...]


def close_part(folder: RankFolder, number: int, tables: Mapping[str, pa.Table]) -> Part:
    """Write tables as the next part of a rank, so that it exists completely or not at all."""
    files = tuple(_write_file(folder, name, number, table) for name, table in tables.items() if len(table))
    Journal(folder.manifest).append({"part": number, "files": [asdict(file) for file in files]})
    return Part(number, files)


def read_manifest(folder: RankFolder) -> list[Part]:
    """Return the closed parts of a rank, in order; damaged lines are left out (``verify`` names them)."""
    lines = Journal(folder.manifest).values()
    return [Part(line["part"], tuple(PartFile(**file) for file in line["files"])) for line in lines]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def _write_file(folder: RankFolder, name: str, number: int, table: pa.Table) -> PartFile:
    path = folder.part(name, number)
    with written_aside(path) as file:
        write_table(table, name, file)
        file.flush()
        aside = Path(file.name)
        size, sha256 = aside.stat().st_size, sha256_of(aside)
    ends = pc.min_max(table["step"]).as_py()
    exceptions = undecided = 0
    if name == "batches":
        exceptions = len(table) - table["exceptions"].null_count
        undecided = pc.sum(pc.equal(table["fate"], DELIVERED)).as_py()
    return PartFile(path.name, name, len(table), ends["min"], ends["max"], exceptions, undecided, size, sha256)


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
