"""Closed parts: Parquet files that never change, and the manifest that knows each by its SHA-256.

    rows ──▶ written aside ──▶ renamed to part-000041.parquet ──▶ a line in manifest.jsonl

A part without its line does not exist: its rows are still in the tail.

A rank writes its rows to the tail; full tails become parts:

add ──▶ tail ──(enough rows)──▶ part-000041.parquet ──▶ manifest ──▶ begun ──▶ a new, empty tail
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa

from lading.errors import CorruptLedgerError
from lading.ledger.begun import CLOSED, INTERRUPTED, RUNNING, SEALED, Begun, write_begun
from lading.ledger.launch import MOST_STEPS
from lading.ledger.limits import now_seconds
from lading.ledger.log import sha256_of_bytes
from lading.ledger.run_folder import RankFolder
from lading.ledger.schema import DELIVERED, TABLES, latest_rows, typed, write_table
from lading.ledger.tail import Tail, TailWriter, read_tail
from lading.runtime.fields import Fields, Origin
from lading.runtime.files import Journal, written_aside

_BLOCK = 1 << 20
_MOST_ROWS = 1 << 40


@dataclass(frozen=True)
class PartFile:
    """One closed file, as its manifest knows it.

    Attributes:
        file: Its name.
        table: ``batches``, ``samples`` or ``events``.
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
class LedgerPart:
    """The files that were closed together."""

    number: int
    files: tuple[PartFile, ...]


@dataclass(frozen=True)
class Manifest:
    """What a manifest says.

    Attributes:
        parts: The closed parts, in order.
        end: How the rank ended, ``closed``, ``interrupted`` or ``sealed``; None while it runs, or if it crashed.
        problems: What is wrong with it, as sentences.
        torn: Whether its last line was cut off by a crash.
        lines: Its lines, whole ones only, as bytes.
        compacted: Whether its parts were merged; then their numbers are any, in order of the lines.
    """

    parts: tuple[LedgerPart, ...]
    end: str | None
    problems: tuple[str, ...]
    torn: bool
    lines: tuple[bytes, ...]
    compacted: bool = False

    def sha256(self, lines: int) -> str:
        """Return the SHA-256 of the first lines."""
        return sha256_of_bytes(b"".join(self.lines[:lines]))


def close_part(folder: RankFolder, number: int, tables: Mapping[str, pa.Table]) -> LedgerPart:
    """Write tables as the next part of a rank, so that it exists completely or not at all."""
    part = write_part(folder, number, tables)
    Journal(folder.manifest).append({"part": number, "files": [asdict(file) for file in part.files]})
    return part


def write_part(folder: RankFolder, number: int, tables: Mapping[str, pa.Table]) -> LedgerPart:
    """Write the files of a part, which exists once the manifest has its line."""
    files = (_write_file(folder, name, number, table) for name, table in tables.items() if len(table))
    return LedgerPart(number, tuple(files))


def read_manifest(folder: RankFolder) -> Manifest:
    """Return the closed parts of a rank, in order, and what is wrong with their manifest."""
    parts: list[LedgerPart] = []
    end, problems, torn, compacted = None, [], False, False
    origin = Origin(folder.manifest, CorruptLedgerError)
    found = Journal(folder.manifest).lines()
    for line in found:
        if line.value is None:
            torn = line.torn and line is found[-1]
            if not torn:
                problems.append(f"line {line.number} was altered: its CRC is wrong")
            continue
        if line.number == 1 and line.value == {"compacted": True}:
            compacted = True
            continue
        try:
            used = {part.number for part in parts} if compacted else None
            part, ended = _line_from(Fields(line.value, origin, f"line {line.number}"), folder, len(parts), used)
        except CorruptLedgerError as error:
            problems.append(f"line {line.number} does not belong there ({error})")
            continue
        if end is not None:
            problems.append(f"line {line.number} comes after the line that ends it")
        elif part is not None:
            parts.append(part)
        end = end or ended
    return Manifest(tuple(parts), end, tuple(problems), torn, _whole_lines(folder.manifest), compacted)


def _whole_lines(path: Path) -> tuple[bytes, ...]:
    try:
        return tuple(line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n"))
    except OSError:
        return ()


def _line_from(
    fields: Fields, folder: RankFolder, number: int, used: set[int] | None
) -> tuple[LedgerPart | None, str | None]:
    """Return the part of a line, or how the rank ended.

    Args:
        fields: The line.
        folder: The rank.
        number: Parts before it: the number it must have.
        used: Where parts were merged, the numbers before it: it has another.
    """
    found = fields.integer("part", low=0, high=10**9)
    if "end" in fields:
        fields.only("part", "end")
        if found != number:
            fields.refuse("part", str(number))
        return None, fields.text("end", choices=(CLOSED, INTERRUPTED, SEALED))
    if (found != number) if used is None else (found in used):
        fields.refuse("part", str(number) if used is None else "a number of its own")
    fields.only("part", "files")
    number = found
    files = tuple(_part_file(record, folder, number) for record in fields.records("files", most=len(TABLES)))
    return LedgerPart(number, files), None


def _part_file(fields: Fields, folder: RankFolder, number: int) -> PartFile:
    fields.only(*PartFile.__dataclass_fields__)
    table = fields.text("table", choices=TABLES)
    name = folder.part(table, number).name
    if fields.text("file") != name:
        fields.refuse("file", name)
    first = fields.integer("first_step", low=0, high=MOST_STEPS)
    return PartFile(
        file=name,
        table=table,
        rows=fields.integer("rows", low=1, high=_MOST_ROWS),
        first_step=first,
        last_step=fields.integer("last_step", low=first, high=MOST_STEPS),
        exceptions=fields.integer("exceptions", low=0, high=_MOST_ROWS),
        undecided=fields.integer("undecided", low=0, high=_MOST_ROWS),
        size=fields.integer("size", low=1),
        sha256=fields.hexadecimal("sha256", digits=64),
    )


def has_live_rows(manifest: Manifest, tail: Tail) -> bool:
    """Say whether a tail holds rows that are in no part."""
    return manifest.end is None and (tail.generation is None or tail.generation >= len(manifest.parts))


def recorded_until(folder: RankFolder) -> int | None:
    """Return the largest step of which a rank recorded a batch."""
    tail, manifest = read_tail(folder.tail), read_manifest(folder)
    steps = [file.last_step for part in manifest.parts for file in part.files if file.table == "batches"]
    if tail.generation is not None and has_live_rows(manifest, tail):
        steps += [int(table["step"].to_numpy().max()) for table in tail.tables["batches"] if len(table)]
    return max(steps, default=None)


def remove_unclosed(folder: RankFolder) -> None:
    """Remove parts of a rank that died before their line was written; their rows are in the tail."""
    manifest = read_manifest(folder)
    known = {file.file for part in manifest.parts for file in part.files}
    if not manifest.problems:
        for table in TABLES:
            path = folder.part(table, len(manifest.parts))
            if path.name not in known:
                path.unlink(missing_ok=True)


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
    import pyarrow.compute as pc  # here: it makes 300 functions, and those who only read need none of them

    ends = pc.min_max(table["step"]).as_py()
    exceptions = undecided = 0
    if name == "batches":
        exceptions = len(table) - table["exceptions"].null_count
        undecided = pc.sum(pc.equal(table["fate"], DELIVERED)).as_py()
    return PartFile(path.name, name, len(table), ends["min"], ends["max"], exceptions, undecided, size, sha256)


PART_ROWS = {"batches": 1 << 16, "samples": 1 << 20, "events": 1 << 16}


class RankStore:
    """Keep the rows of one rank.

    Args:
        folder: The rank's folder; it must be this process's alone.
        begun: What the rank said when it was about to open.
        part_rows: Rows of each table at which a part is closed.
    """

    def __init__(self, folder: RankFolder, begun: Begun, part_rows: dict[str, int] | None = None) -> None:
        self._folder, self._part_rows = folder, {**PART_ROWS, **(part_rows or {})}
        self._held: dict[str, list[pa.Table]] = {name: [] for name in TABLES}
        self._part = 0
        self._retry_at = 0
        self._is_behind = False
        self._begun = begun
        self._tail = self._next_tail()
        self._note(RUNNING)

    def add(self, tables: Mapping[str, pa.Table]) -> None:
        """Write rows to the tail; all of them or, with an error, none."""
        self._catch_up()
        self._tail.append(tables, first_step=min(table["step"][0].as_py() for table in tables.values()))
        for name, table in tables.items():
            self._held[name].append(table)

    def sync(self) -> None:
        """Wait until everything added is on disk."""
        self._catch_up()
        self._tail.sync()

    def close_full_part(self) -> None:
        """Close a part, where there are enough rows for one."""
        rows = self._rows()
        if sum(rows.values()) >= self._retry_at and any(rows[name] >= self._part_rows[name] for name in TABLES):
            self._close_part()

    def close(self, end: str = CLOSED) -> None:
        """Close the last part and say how the rank ended: ``closed`` or ``interrupted``."""
        if any(self._rows().values()):
            self._close_part()
        Journal(self._folder.manifest).append({"part": self._part, "end": end})
        self._note(end)
        self._folder.tail.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self._tail.close()

    def _rows(self) -> dict[str, int]:
        return {name: sum(map(len, held)) for name, held in self._held.items()}

    def _close_part(self) -> None:
        rows = sum(self._rows().values())
        self._retry_at = 2 * rows  # should it fail, the rows are safe in the tail: do not try at every turn
        self._catch_up()
        tables = {name: settled_rows(name, held) for name, held in self._held.items() if held}
        close_part(self._folder, self._part, tables)
        self._part += 1
        self._retry_at, self._is_behind = 0, True
        self._held = {name: [] for name in TABLES}
        self._catch_up()

    def _catch_up(self) -> None:
        """After a part: let ``begun`` know it and begin the next tail; tried again where the disk was full."""
        if self._is_behind:
            self._note(RUNNING)
            old, self._tail = (
                self._tail,
                TailWriter(self._folder.tail, self._part, self._begun.launch, self._folder.rank),
            )
            old.close()
            self._is_behind = False

    def _next_tail(self) -> TailWriter:
        return TailWriter(self._folder.tail, self._part, self._begun.launch, self._folder.rank)

    def _note(self, state: str) -> None:
        lines = _whole_lines(self._folder.manifest)
        manifest = sha256_of_bytes(b"".join(lines))
        begun = replace(self._begun, state=state, lines=len(lines), manifest=manifest, time=now_seconds())
        write_begun(self._folder, begun)
        self._begun = begun


def settled_rows(name: str, held: list[pa.Table]) -> pa.Table:
    """Return the rows, of batches only the latest of each step."""
    table = pa.concat_tables(held).combine_chunks()
    return latest_rows(table) if name == "batches" else typed(table, name)
