"""Writing so that a crash, at any moment, leaves the old or the new and never a mixture.

write_aside   bytes ──▶ .name.<pid>.tmp ──▶ fsync ──▶ rename to name ──▶ fsync of the folder
Journal       one JSON line with its CRC, appended in one write; torn and altered lines are recognised
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO


def sync_folder(folder: Path) -> None:
    """Make names created, renamed or removed in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems cannot sync folders; the data itself is synced
        pass
    finally:
        os.close(handle)


@contextlib.contextmanager
def written_aside(path: Path, place: Callable[[Path, Path], Any] = os.replace) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` when all of it is on disk, or leaves no trace."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(aside, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        place(aside, path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def write_aside(path: Path, content: bytes) -> None:
    """Replace a file by new content, all or nothing."""
    with written_aside(path) as file:
        file.write(content)


def create_aside(path: Path, content: bytes) -> bool:
    """Create a file with its content in one go; return False where it exists already."""
    try:
        with written_aside(path, _link) as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def _link(aside: Path, path: Path) -> None:
    """Give a file its name unless somebody has it; where there are no hard links, with a moment's doubt."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(str(path)) from None
        os.replace(aside, path)


def json_bytes(value: Any) -> bytes:
    """Return a value as readable JSON."""
    return (json.dumps(value, indent=1, sort_keys=False) + "\n").encode()


@dataclass(frozen=True)
class Line:
    """One line of a journal.

    Attributes:
        number: Line number in the file, from 1.
        value: What was written; None where the line is damaged.
        torn: True where the line is the beginning of one that a crash cut off.
    """

    number: int
    value: dict[str, Any] | None
    torn: bool = False


class Journal:
    """A file of JSON lines to which one only appends; each line carries its own CRC.

    Args:
        path: The file; it is made by the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, value: dict[str, Any]) -> None:
        """Add a line and wait until it is on disk."""
        text = json.dumps(value, separators=(",", ":"))
        line = f'{{"crc":{zlib.crc32(text.encode())},{text[1:]}\n'.encode()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":  # a torn line before us must not swallow ours
                line = b"\n" + line
            if os.write(handle, line) != len(line):
                os.ftruncate(handle, size)
                raise OSError(28, "No space left on device", str(self.path))
            os.fsync(handle)
        finally:
            os.close(handle)

    def lines(self) -> list[Line]:
        """Return every line, damaged and torn ones marked."""
        try:
            texts = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        return [_parse(number, text) for number, text in enumerate(texts, start=1) if text.strip()]

    def values(self) -> list[dict[str, Any]]:
        """Return what the good lines say."""
        return [line.value for line in self.lines() if line.value is not None]


def _parse(number: int, text: bytes) -> Line:
    try:
        value = json.loads(text)
        crc = value.pop("crc")
    except (ValueError, KeyError, AttributeError):
        return Line(number, None, torn=not text.rstrip().endswith(b"}"))
    intact = zlib.crc32(json.dumps(value, separators=(",", ":")).encode()) == crc
    return Line(number, value if intact else None)
