"""The tail: rows that are on disk but not in a closed part yet.

    header    generation · bytes written · bytes synced · CRC        rewritten in place after every append
    record    mark · table · first step · length · CRC of the rows · CRC of this line · rows as an Arrow stream
    record    ...

A record that a crash cut off fails its CRC and is left out. The header knows
how long the file once was, so a tail that somebody cut is told apart from one
that was never finished. The generation is the number of the part the tail
will become: a tail whose part is closed already is stale.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from lading.runtime.files import sync_folder

MAGIC = b"LADTAIL1"
HEADER_BYTES = 64
_HEADER = struct.Struct("<8sQQQI")
_MARK = b"LREC"
_RECORD = struct.Struct("<4sBqIII")
TABLES = ("batches", "samples")


class TailWriter:
    """Append records to a rank's tail.

    Args:
        path: The file. What was there is replaced when this tail is ready.
        generation: Number of the part that the tail will become.
    """

    def __init__(self, path: Path, generation: int) -> None:
        self.path, self.generation = path, generation
        self.size = self._synced = HEADER_BYTES
        aside = path.with_name(f".tail.{os.getpid()}.tmp")
        self._file = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self._write_header()
            os.fsync(self._file)
            os.replace(aside, path)
        except OSError:
            os.close(self._file)
            aside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)

    def append(self, name: str, table: pa.Table, *, first_step: int) -> None:
        """Add a record of rows; all of it or, on a full disk, nothing."""
        payload = _to_stream(table)
        head = _RECORD.pack(_MARK, TABLES.index(name), first_step, len(payload), zlib.crc32(payload), 0)[:-4]
        record = head + struct.pack("<I", zlib.crc32(head)) + payload
        before = self.size
        try:
            _write_all(self._file, record, before)
            self.size += len(record)
            self._write_header()
        except OSError:
            self.size = before
            os.ftruncate(self._file, before)
            raise

    def sync(self) -> None:
        """Wait until everything appended is on disk."""
        if self._synced == self.size:
            return
        os.fsync(self._file)
        self._synced = self.size
        self._write_header()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _write_header(self) -> None:
        fields = _HEADER.pack(MAGIC, self.generation, self.size, self._synced, 0)[:-4]
        header = fields + struct.pack("<I", zlib.crc32(fields))
        _write_all(self._file, header.ljust(HEADER_BYTES, b"\0"), 0)


@dataclass
class Tail:
    """What a tail holds.

    Attributes:
        present: Whether there was a file when it was read.
        generation: Number of the part it will become; None where the header is damaged.
        tables: The good records of each table, in order.
        missing: Bytes that were written once and are gone.
        unsynced: Whether all the missing bytes may never have reached the disk (written, but not synced).
        damaged: (offset, first step or None) of records whose bytes changed.
    """

    present: bool = False
    generation: int | None = None
    tables: dict[str, list[pa.Table]] = field(default_factory=lambda: {name: [] for name in TABLES})
    missing: int = 0
    unsynced: bool = False
    damaged: list[tuple[int, int | None]] = field(default_factory=list)


def read_tail(path: Path) -> Tail:
    """Read the good records of a tail, and say what is wrong with the others. A missing file is an empty tail."""
    tail = Tail()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return tail
    tail.present = True
    written = synced = 0
    head = content[: _HEADER.size]
    if len(head) == _HEADER.size and zlib.crc32(head[:-4]) == _HEADER.unpack(head)[4] and head.startswith(MAGIC):
        _, tail.generation, written, synced, _ = _HEADER.unpack(head)
    else:
        tail.damaged.append((0, None))
    tail.missing = max(0, written - len(content))
    tail.unsynced = tail.missing > 0 and len(content) >= synced
    _read_records(content, written, tail)
    return tail


def _read_records(content: bytes, written: int, tail: Tail) -> None:
    offset = HEADER_BYTES
    while offset + _RECORD.size <= len(content):
        mark, number, first_step, length, crc, head_crc = _RECORD.unpack_from(content, offset)
        start = offset + _RECORD.size
        if mark != _MARK or zlib.crc32(content[offset : start - 4]) != head_crc:
            if offset < written:
                tail.damaged.append((offset, None))
            found = content.find(_MARK, offset + 1)
            offset = found if found > 0 else len(content)
            continue
        payload = content[start : start + length]
        if zlib.crc32(payload) == crc:
            tail.tables[TABLES[number]].append(_from_stream(payload))
        elif start + length <= len(content) and offset < written:
            tail.damaged.append((offset, first_step))
        offset = start + length


def _write_all(file: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        count = os.pwrite(file, view, offset)
        view, offset = view[count:], offset + count


def _to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _from_stream(payload: bytes) -> pa.Table:
    with pa.ipc.open_stream(payload) as stream:
        return stream.read_all()
