"""Closed parts: Parquet files that never change, and the manifest that knows each by its SHA-256.

    rows ──▶ written aside ──▶ renamed to part-000041.parquet ──▶ a line in manifest.jsonl

A part without its line does not exist: its rows are still in the tail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lading.ledger.durable import Journal, written_aside
from lading.ledger.layout import RankFolder
from lading.ledger.schema import DELIVERED, write_table

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
