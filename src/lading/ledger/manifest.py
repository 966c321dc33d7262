"""The manifest of a rank: its closed parts, each known by its SHA-256, and how the rank ended.

A part without its line does not exist: its rows are still in the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lading.errors import CorruptLedgerError
from lading.ledger.begun import ENDS
from lading.ledger.launch import STEP
from lading.ledger.log import sha256_of_bytes
from lading.ledger.packed import RowBytes, layout
from lading.ledger.run_folder import RankFolder
from lading.ledger.tables import TABLES
from lading.ledger.tail import Tail, read_tail
from lading.runtime.fields import SHA256, SIZE, Fields, FieldTable, Origin
from lading.runtime.files import Journal, lines_of

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
    content = Journal(folder.manifest).content()
    found = lines_of(content)
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
    return Manifest(tuple(parts), end, tuple(problems), torn, _whole(content), compacted)


def whole_lines(path: Path) -> tuple[bytes, ...]:
    """Return the lines of a file that are not cut off."""
    try:
        return _whole(path.read_bytes())
    except OSError:
        return ()


def _whole(content: bytes) -> tuple[bytes, ...]:
    return tuple([line for line in content.splitlines(keepends=True) if line.endswith(b"\n")])


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
    files = tuple([_part_file(record, folder, number) for record in fields.records("files", most=len(TABLES))])
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
