"""The rows of one rank on disk: to the tail, and full tails to parts, which its manifest lists.

    add ──▶ tail ──(enough rows)──▶ part-000041.parquet ──▶ manifest ──▶ begun ──▶ a new, empty tail

The manifest knows each closed part by its SHA-256, and says how the rank ended. A part without its line does not exist:
its rows are still in the tail.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lading.errors import CorruptLedgerError
from lading.ledger.begun import CLOSED, ENDS, RUNNING, Begun, write_begun
from lading.ledger.launch import STEP
from lading.ledger.limits import now_seconds
from lading.ledger.log import sha256_of_bytes
from lading.ledger.packed import RowBytes, layout
from lading.ledger.run_folder import RankFolder
from lading.ledger.tables import FORMATS, TABLES
from lading.ledger.tail import Tail, TailWriter, read_tail
from lading.runtime.fields import SHA256, SIZE, Fields, FieldTable, Origin
from lading.runtime.files import Journal

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_ROWS = 1 << 40


@dataclass(frozen=True)
class PartFile:
    """One closed file, as its manifest knows it.

    Attributes:
        file: Its name.
        table: One of ``TABLES``.
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
        end: How the rank ended, one of ``ENDS``; None while it runs, or if it crashed.
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
    return Manifest(tuple(parts), end, tuple(problems), torn, whole_lines(folder.manifest), compacted)


def whole_lines(path: Path) -> tuple[bytes, ...]:
    """Return the lines of a file that are not cut off."""
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
        return None, fields.text("end", choices=ENDS)
    if (found != number) if used is None else (found in used):
        fields.refuse("part", str(number) if used is None else "a number of its own")
    fields.only("part", "files")
    number = found
    files = tuple(_part_file(record, folder, number) for record in fields.records("files", most=len(TABLES)))
    return LedgerPart(number, files), None


def _part_file(fields: Fields, folder: RankFolder, number: int) -> PartFile:
    file = PartFile(**fields.each(_FILE))
    name = folder.part(file.table, number).name
    if file.file != name:
        fields.refuse("file", name)
    if file.last_step < file.first_step:
        fields.refuse("last_step", f"a step from {file.first_step} on")
    return file


_ROWS = partial(Fields.integer, low=0, high=_MOST_ROWS)
_FILE: FieldTable = {
    "file": Fields.text,
    "table": partial(Fields.text, choices=TABLES),
    "rows": partial(Fields.integer, low=1, high=_MOST_ROWS),
    "first_step": STEP,
    "last_step": STEP,
    "exceptions": _ROWS,
    "undecided": _ROWS,
    "size": SIZE,
    "sha256": SHA256,
}


def has_live_rows(manifest: Manifest, tail: Tail) -> bool:
    """Say whether a tail holds rows that are in no part."""
    return manifest.end is None and (tail.generation is None or tail.generation >= len(manifest.parts))


def live_rows(manifest: Manifest, tail: Tail) -> dict[str, list[RowBytes]]:
    """Return the rows of a tail that are in no part, by table."""
    return tail.rows if tail.generation is not None and has_live_rows(manifest, tail) else {}


def recorded_until(folder: RankFolder) -> int | None:
    """Return the largest step of which a rank recorded a batch."""
    tail, manifest = read_tail(folder.tail), read_manifest(folder)
    steps = [file.last_step for part in manifest.parts for file in part.files if file.table == "batches"]
    live = live_rows(manifest, tail).get("batches", ())
    return max([*steps, *(int(layout("batches").columns(rows)["step"][0].max()) for rows in live)], default=None)


def remove_unclosed(folder: RankFolder) -> None:
    """Remove parts of a rank that died before their line was written; their rows are in the tail."""
    manifest = read_manifest(folder)
    known = {file.file for part in manifest.parts for file in part.files}
    if not manifest.problems:
        for table in TABLES:
            path = folder.part(table, len(manifest.parts))
            if path.name not in known:
                path.unlink(missing_ok=True)


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

    def sync(self) -> None:
        """Wait until everything added is on disk."""
        self.catch_up().sync()

    def close_full_part(self) -> None:
        """Close a part, where there are enough rows for one."""
        rows = self._rows()
        if sum(rows.values()) >= self._retry_at and any(rows[name] >= self._part_rows[name] for name in TABLES):
            self._close_part()

    def close(self, end: str = CLOSED) -> None:
        """Close the last part and say how the rank ended, one of ``ENDS``, and what it stored."""
        from lading.ledger.parts import stored_rows  # here: Arrow is opened when the first part is closed

        last = self._close_part() if any(self._rows().values()) else {}
        stored = stored_rows(self._folder, self._part - bool(last), last)  # the last part need not be read again
        self._begun = replace(self._begun, rows=stored.rows, rows_sha256=stored.sha256)
        Journal(self._folder.manifest).append({"part": self._part, "end": end})
        self._note(end)
        self._folder.tail.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Let go of the files as they are."""
        if self._tail is not None:
            self._tail.close()

    def _rows(self) -> dict[str, int]:
        return {name: sum(some.rows for some in held) for name, held in self._held.items()}

    def _close_part(self) -> dict[str, pa.Table]:
        from lading.ledger.parts import close_part, held_rows  # here: Arrow is opened when the first part is closed

        rows = sum(self._rows().values())
        self._retry_at = 2 * rows  # should it fail, the rows are safe in the tail: do not try at every turn
        self.catch_up()
        tables = held_rows(self._held)
        close_part(self._folder, self._part, tables)
        self._part += 1
        self._retry_at, self._is_behind = 0, True
        self._held = {name: [] for name in TABLES}
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
