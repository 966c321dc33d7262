"""Closed parts: Parquet files that never change, and the manifest that knows each by its SHA-256.

    rows ──▶ written aside ──▶ renamed to part-000041.parquet ──▶ a line in manifest.jsonl

A part without its line does not exist: its rows are still in the tail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lading.errors import CorruptLedgerError
from lading.ledger.manifest import LedgerPart, Manifest, PartFile, live_rows, read_manifest
from lading.ledger.packed import RowBytes
from lading.ledger.row_hash import RowsHash, StoredRows, rows_hash
from lading.ledger.run_folder import RankFolder
from lading.ledger.schema import latest_rows, rows_table, typed, write_table
from lading.ledger.tables import DELIVERED, TABLES
from lading.ledger.tail import Tail, read_tail
from lading.runtime.arrow import numbers, words_of
from lading.runtime.files import Journal, written_aside


def close_part(folder: RankFolder, number: int, tables: Mapping[str, pa.Table]) -> LedgerPart:
    """Write tables as the next part of a rank, so that it exists completely or not at all."""
    part = write_part(folder, number, tables)
    Journal(folder.manifest).append({"part": number, "files": [asdict(file) for file in part.files]})
    return part


def write_part(folder: RankFolder, number: int, tables: Mapping[str, pa.Table]) -> LedgerPart:
    """Write the files of a part, which exists once the manifest has its line."""
    files = (_write_file(folder, name, number, table) for name, table in tables.items() if len(table))
    return LedgerPart(number, tuple(files))


def read_closed(folder: RankFolder, file: PartFile) -> pa.Table:
    """Return the rows of a closed file; refuse one that is not what was written."""
    path = folder.path / file.file
    try:
        if sha256_of(path) != file.sha256:
            raise ValueError("its SHA-256 is not the manifest's")
        return typed(pq.ParquetFile(path, page_checksum_verification=True).read(), file.table)
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise CorruptLedgerError(f"{path} cannot be read ({error}). Run `lading verify`.") from error


def pieces_of(
    parts: Iterable[LedgerPart], read: Callable[[PartFile], pa.Table], tail: Mapping[str, pa.Table]
) -> dict[str, list[StoredRows]]:
    """Return the rows of a rank as they lie, by table: closed parts, in order, and what follows them."""
    pieces: dict[str, list[StoredRows]] = {name: [] for name in TABLES}
    for file in (file for part in parts for file in part.files):
        pieces[file.table].append(StoredRows(file.first_step, partial(read, file)))
    for name, table in tail.items():
        if len(table):
            pieces[name].append(StoredRows(int(numbers(table["step"])[0].min()), partial(pa.Table.slice, table)))
    return pieces


def live_tables(manifest: Manifest, tail: Tail) -> dict[str, pa.Table]:
    """Return the rows of a tail that are in no part, by table."""
    found = live_rows(manifest, tail)
    return {name: rows_table(name, rows) for name, rows in found.items() if rows}


def rows_of(folder: RankFolder, table: str) -> list[pa.Table]:
    """Return the rows of a rank as they lie: closed parts, in order, and what the tail holds beyond them."""
    tail, manifest = read_tail(folder.tail), read_manifest(folder)  # a part that is closed in between is seen once
    closed = (file for part in manifest.parts for file in part.files if file.table == table)
    return [
        *(read_closed(folder, file) for file in closed),
        rows_table(table, live_rows(manifest, tail).get(table, ())),
    ]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_file(folder: RankFolder, name: str, number: int, table: pa.Table) -> PartFile:
    path = folder.part(name, number)
    with written_aside(path) as file:
        write_table(table, name, file)
        file.flush()
        aside = Path(file.name)
        size, sha256 = aside.stat().st_size, sha256_of(aside)
    return PartFile(path.name, name, **described(name, table), size=size, sha256=sha256)


def described(name: str, table: pa.Table) -> dict[str, int]:
    """Return what a manifest says of the rows of a file."""
    steps = numbers(table["step"])[0]
    found = {"rows": len(table), "first_step": int(steps.min()), "last_step": int(steps.max())}
    if name != "batches":
        return {**found, "exceptions": 0, "undecided": 0}
    undecided = int(words_of(table["fate"], DELIVERED).sum())
    return {**found, "exceptions": len(table) - table["exceptions"].null_count, "undecided": undecided}


def held_rows(held: Mapping[str, Sequence[RowBytes]]) -> dict[str, pa.Table]:
    """Return the rows that a rank holds for its next part, by table."""
    return {name: settled_rows(name, [rows_table(name, rows)]) for name, rows in held.items() if rows}


def stored_rows(folder: RankFolder, parts: int, more: Mapping[str, pa.Table]) -> RowsHash:
    """Return number and SHA-256 of the rows of a rank: of its first parts, and of those that follow."""
    closed = read_manifest(folder).parts[:parts]
    return rows_hash(pieces_of(closed, partial(read_closed, folder), more))


def settled_rows(name: str, held: list[pa.Table]) -> pa.Table:
    """Return the rows, of batches only the latest of each step."""
    table = pa.concat_tables(held).combine_chunks()
    return latest_rows(table) if name == "batches" else typed(table, name)
