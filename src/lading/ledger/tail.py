"""The tail: rows that are on disk but not in a closed part yet.

    header    mark · generation · launch · rank · CRC                written once
    lengths   turn · bytes written · bytes synced · CRC              two places, used in turn after every append
    record    mark · number · first step · a length a table · CRC · chained CRC · CRC of this line · rows of each table
    record    ...

A record holds rows of all tables, so that names and batches are there together
or not at all. One that a crash cut off fails its CRC and is left out. Records
are numbered and each chained CRC continues the one before: one that is gone,
doubled or moved shows. The generation is the number of the part that the tail
will become: a tail whose part is closed already is stale.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from lading.errors import LedgerError
from lading.ledger.packed import RowBytes, layout
from lading.ledger.tables import TABLES
from lading.runtime.files import BINARY, write_aside

MAGIC = b"LADTAIL3"
HEADER_BYTES = 128
_STATIC = struct.Struct("<8sQ32sI8x")
_LENGTHS = struct.Struct("<QQQ")
_LENGTHS_AT = (64, 96)
_CRC = struct.Struct("<I")
_MARK = b"LREC"
_RECORD = struct.Struct(f"<4sQq{len(TABLES)}I")
_SUMS = struct.Struct("<III")
_RECORD_BYTES = _RECORD.size + _SUMS.size


class TailWriter:
    """Append records to a rank's tail.

    Args:
        path: The file. What was there is replaced when this tail is ready.
        generation: Number of the part that the tail will become.
        launch: SHA-256 of the attempt's launch record.
        rank: Whose tail it is.
    """

    def __init__(self, path: Path, generation: int, launch: str, rank: int = 0) -> None:
        self.path, self.generation = path, generation
        self.size = self._synced = HEADER_BYTES
        static = _STATIC.pack(MAGIC, generation, bytes.fromhex(launch), rank)
        self._static_crc = self._chain = zlib.crc32(static)
        self._turn = self._records = 0
        header = (static + _CRC.pack(self._static_crc)).ljust(_LENGTHS_AT[0], b"\0") + self._lengths()
        write_aside(path, header.ljust(HEADER_BYTES, b"\0"))
        self._file = os.open(path, os.O_RDWR | BINARY)

    def append(self, tables: Mapping[str, RowBytes]) -> None:
        """Add a record of rows; all of it or, on a full disk, nothing."""
        streams = [tables[name].to_bytes() if name in tables else b"" for name in TABLES]
        first_step = min(rows.first_step for rows in tables.values())
        head = _RECORD.pack(_MARK, self._records, first_step, *map(len, streams))
        own = functools.reduce(lambda crc, stream: zlib.crc32(stream, crc), streams, zlib.crc32(head))
        chain = zlib.crc32(_CRC.pack(own), self._chain)
        sums = struct.pack("<II", own, chain)
        record = b"".join([head, sums, _CRC.pack(zlib.crc32(head + sums)), *streams])
        before = self.size
        try:
            _write_all(self._file, record, before)
            self.size += len(record)
            self._write_lengths()
        except OSError:
            self.size = before
            os.ftruncate(self._file, before)
            raise
        self._records, self._chain = self._records + 1, chain

    def sync(self) -> None:
        """Wait until everything appended is on disk, under the name that readers look for."""
        self._check_place()
        if self._synced == self.size:
            return
        os.fsync(self._file)
        self._synced = self.size
        self._write_lengths()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _check_place(self) -> None:
        try:
            here = os.path.samestat(os.stat(self.path), os.fstat(self._file))
        except FileNotFoundError:
            here = False
        if not here:
            raise LedgerError(
                f"{self.path} was deleted or replaced while the run was writing it: what was recorded since part "
                f"{self.generation} was begun is lost. Stop the run, restore the folder or give the run a new one, and "
                "resume from a checkpoint before that."
            )

    def _write_lengths(self) -> None:
        self._turn += 1
        _write_all(self._file, self._lengths(), _LENGTHS_AT[self._turn % 2])

    def _lengths(self) -> bytes:
        fields = _LENGTHS.pack(self._turn, self.size, self._synced)
        return fields + _CRC.pack(zlib.crc32(fields, self._static_crc))


@dataclass
class Tail:
    """What a tail holds.

    Attributes:
        present: Whether there was a file when it was read.
        generation: Number of the part it will become; None where the header is damaged.
        launch: SHA-256 of the launch record it belongs to; "" where the header is damaged.
        rank: The rank it belongs to.
        rows: The good rows of each table, in order.
        records: Number of good records.
        missing: Bytes that were written once and are gone.
        unsynced: Whether all the missing bytes may never have reached the disk (written, but not synced).
        damaged: (offset, first step or None) of records whose bytes changed, or that are not where they belong.
        torn: Whether one of the two places of the lengths cannot be read: a crash, or a change that hides nothing.
    """

    present: bool = False
    generation: int | None = None
    launch: str = ""
    rank: int = -1
    rows: dict[str, list[RowBytes]] = field(default_factory=lambda: {name: [] for name in TABLES})
    records: int = 0
    missing: int = 0
    unsynced: bool = False
    damaged: list[tuple[int, int | None]] = field(default_factory=list)
    torn: bool = False


def read_tail(path: Path) -> Tail:
    """Read the good records of a tail, and say what is wrong with the others. A missing file is an empty tail."""
    tail = Tail()
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return tail
    except OSError:
        tail.present = True
        tail.damaged.append((0, None))
        return tail
    tail.present = True
    chain = _read_static(content, tail)
    written, synced = _read_lengths(content, chain, tail)
    tail.missing = max(0, written - len(content))
    tail.unsynced = tail.missing > 0 and len(content) >= synced
    _read_records(content, written, chain, tail)
    return tail


def _read_static(content: bytes, tail: Tail) -> int | None:
    head, end = content[: _STATIC.size], _STATIC.size + _CRC.size
    crc = zlib.crc32(head)
    padding = content[end : _LENGTHS_AT[0]].strip(b"\0")
    is_ours = len(content) >= HEADER_BYTES and head[:8] == MAGIC and not head[-8:].strip(b"\0") and not padding
    if not is_ours or _CRC.unpack(content[_STATIC.size : end])[0] != crc:
        tail.damaged.append((0, None))
        return None
    _, tail.generation, launch, tail.rank = _STATIC.unpack(head)
    tail.launch = launch.hex()
    return crc


def _read_lengths(content: bytes, static_crc: int | None, tail: Tail) -> tuple[int, int]:
    """Return the bytes written and synced, as the newer of the two readable places has them."""
    found = []
    for place in _LENGTHS_AT:
        block = content[place : place + 32]
        fields, crc = block[: _LENGTHS.size], block[_LENGTHS.size : _LENGTHS.size + _CRC.size]
        if static_crc is not None and len(block) == 32 and crc == _CRC.pack(zlib.crc32(fields, static_crc)):
            found.append(_LENGTHS.unpack(fields))
        elif block.strip(b"\0"):
            tail.torn = True
        if block[_LENGTHS.size + _CRC.size :].strip(b"\0"):
            tail.torn = True
    if not found:
        if static_crc is not None:
            tail.damaged.append((_LENGTHS_AT[0], None))
        return len(content), HEADER_BYTES
    _, written, synced = max(found)
    return written, synced


def _read_records(content: bytes, written: int, chain: int | None, tail: Tail) -> None:
    offset, number = HEADER_BYTES, 0
    whole: list[_Found] = []
    while offset + _RECORD_BYTES <= len(content):
        start = offset + _RECORD_BYTES
        head, sums = content[offset : offset + _RECORD.size], content[offset + _RECORD.size : start]
        mark, found, first_step, *lengths = _RECORD.unpack(head)
        own, linked, line = _SUMS.unpack(sums)
        if mark != _MARK or zlib.crc32(head + sums[:8]) != line:
            if offset < written:
                tail.damaged.append((offset, None))
            place = content.find(_MARK, offset + 1)
            offset, chain, number = (place if place > 0 else len(content)), None, -1
            continue
        stop = start + sum(lengths)
        body = content[start:stop]
        if number >= 0 and (found != number or (chain is not None and zlib.crc32(_CRC.pack(own), chain) != linked)):
            tail.damaged.append((offset, first_step))  # whole as it may be, it is not the record that belongs here
        elif stop <= len(content) and zlib.crc32(body, zlib.crc32(head)) != own:
            tail.damaged.append((offset, first_step))
        elif stop <= len(content):
            whole.append(_Found(offset, first_step, body, lengths))
        offset, chain, number = stop, linked, found + 1
    if not _take(whole, tail):  # one of them: which
        tail.damaged += [(one.offset, one.first_step) for one in whole if not _take([one], tail)]
        tail.damaged.sort(key=lambda damage: damage[0])
    if len(content) >= HEADER_BYTES and HEADER_BYTES <= offset < written <= len(content):
        tail.damaged.append((offset, None))


class _Found(NamedTuple):
    """A record whose bytes are those that were written."""

    offset: int
    first_step: int
    body: bytes
    lengths: list[int]


def _take(found: list[_Found], tail: Tail) -> bool:
    """Add the rows of records; return False, and add none, where one holds what a ledger does not write."""
    rows: dict[str, list[RowBytes]] = {name: [] for name in TABLES}
    try:
        for record in found:
            start = 0
            for name, length in zip(TABLES, record.lengths, strict=True):
                if length:
                    rows[name].append(layout(name).from_bytes(record.body[start : start + length]))
                start += length
        for name, pieces in rows.items():
            if pieces:
                layout(name).check(pieces)
    except ValueError:
        return False
    for name, pieces in rows.items():
        tail.rows[name] += pieces
    tail.records += len(found)
    return True


def _write_all(file: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        count = _write(file, view, offset)
        view, offset = view[count:], offset + count


def _write(file: int, content: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(file, content, offset)
    os.lseek(file, offset, os.SEEK_SET)  # Windows
    return os.write(file, content)
