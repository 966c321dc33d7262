"""Read documents from text, JSONL and Parquet files, one at a time, each with the place it came from.

a.txt        the file, its lines, or its paragraphs
b.jsonl      {"text": "..."}  a line      (or ready ids: {"input_ids": [1, 2]})
c.parquet    a column of texts or of lists of ids
d.jsonl.zst  compressed texts and JSONL, .gz or .zst

A piece of a file holds what starts in it: lines and paragraphs are not cut, nor are row groups.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import pyarrow.parquet

from lading.errors import ConfigError, SourceError, missing_extra
from lading.identity.document_names import LONGEST_ID, WHOLE_FILE
from lading.runtime.fields import listed
from lading.source.tokens.inputs import LINES, PARQUET, FilePiece, InputFile

SPLITS = ("file", "line", "paragraph")
ROWS_AT_ONCE = 4096
_CHUNK = 1 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class TextDocument:
    """A document and where it came from: its text, or ready token ids.

    Attributes:
        place: Where in the file, for errors.
        line: The line of the piece, or the row of the file; ``WHOLE_FILE`` where it is all of it.
        id: What it calls itself, where it was asked and says so.
    """

    content: Any
    file: str
    place: str = ""
    line: int = WHOLE_FILE
    id: bytes = b""

    def name(self) -> str:
        """Return what it is called in errors."""
        return f"{self.file}{', ' + self.place if self.place else ''}"


def check_split(split: str) -> None:
    """Refuse an unknown way to split text files."""
    if split not in SPLITS:
        raise ConfigError(f"split={split!r} is unknown: expected one of {', '.join(map(repr, SPLITS))}.")


def read_documents(
    pieces: Iterable[FilePiece],
    *,
    field: str = "text",
    split: str = "file",
    id_field: str = "",
    lines: list[int] | None = None,
) -> Iterator[TextDocument]:
    """Yield the documents of some pieces of files, in order.

    Args:
        split: What a document is in a text file.
        id_field: Key or column of what a document calls itself; empty: nothing is looked for.
        lines: Is given how many lines each piece had, so that those of the next one can be counted on.
    """
    counts = [] if lines is None else lines
    for piece in pieces:
        counts.append(0)
        if piece.file.kind == LINES:
            yield from _jsonl(piece, field, id_field, counts)
        elif piece.file.kind == PARQUET:
            yield from _parquet(piece, field, id_field)
        else:
            yield from _text(piece, split, counts)


@contextmanager
def _opened(piece: FilePiece, *, between_paragraphs: bool = False) -> Iterator[tuple[BinaryIO, str]]:
    """Open a piece from the first line that starts in it; give it with what errors say after a line's number."""
    file = piece.file
    try:
        with open(file.path, "rb") as raw:
            if file.compression:
                yield _unpacked(file, raw), ""
                return
            start, stop = (_cut(raw, place, file.size, between_paragraphs) for place in (piece.start, piece.stop))
            with io.BufferedReader(_Range(raw, start, stop), _CHUNK) as inner:
                yield inner, f" after byte {start}" if start else ""
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(file, error) from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{file.name} is no UTF-8 text ({error}). Convert it, or leave it out.") from error
    except OSError as error:
        raise SourceError(f"{file.name} cannot be read ({error.strerror or error}). Check that it is there.") from error


def _unpacked(file: InputFile, raw: BinaryIO) -> BinaryIO:
    if file.compression == ".gz":
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    return io.BufferedReader(_Zstandard(file, raw), _CHUNK)


def _damaged(file: InputFile, error: Exception | str) -> SourceError:
    return SourceError(f"{file.name} cannot be unpacked ({error}). It is damaged or cut off; fetch it again.")


def _cut(raw: BinaryIO, place: int, size: int, between_paragraphs: bool) -> int:
    """Return where the first line (or, after a blank line, paragraph) starts at or after a place."""
    if place <= 0 or place >= size:
        return min(max(place, 0), size)
    raw.seek(place - 1)
    raw.readline()
    while between_paragraphs:
        line = raw.readline()
        if not line.strip():
            break
    return min(raw.tell(), size)


class _Range(io.RawIOBase):
    """The bytes of a file from one place to another."""

    def __init__(self, raw: BinaryIO, start: int, stop: int) -> None:
        self._raw, self._left = raw, stop - start
        raw.seek(start)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        found = self._raw.read(min(len(buffer), self._left))
        buffer[: len(found)] = found
        self._left -= len(found)
        return len(found)


class _Zstandard(io.RawIOBase):
    """The content of a Zstandard file of any number of frames; one that is cut off is refused."""

    def __init__(self, file: InputFile, raw: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise missing_extra("zstandard", "tokens", f"reading {file.name}") from error
        self._file, self._raw, self._error = file, raw, zstandard.ZstdError
        self._make = zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._packed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready and self._more():
            pass
        found, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)

    def _more(self) -> bool:
        """Unpack some more; say whether there may be further bytes."""
        packed = self._packed or self._raw.read(_CHUNK // 8)
        self._packed = b""
        if not packed:
            if self._frame is not None:
                raise _damaged(self._file, "its last frame has no end")
            return False
        self._frame = self._make() if self._frame is None else self._frame
        try:
            self._ready = self._frame.decompress(packed)
        except self._error as error:
            raise _damaged(self._file, error) from error
        if self._frame.eof:
            self._packed, self._frame = self._frame.unused_data, None
        return True


def _text(piece: FilePiece, split: str, counts: list[int]) -> Iterator[TextDocument]:
    name = piece.file.name
    with _opened(piece, between_paragraphs=split == "paragraph") as (stream, after):
        lines = io.TextIOWrapper(stream, encoding="utf-8")
        if split == "file":
            yield TextDocument(lines.read(), name)
        elif split == "line":
            for number, line in _counted(lines, counts):
                yield TextDocument(line.rstrip("\n"), name, f"line {number}{after}", number)
        else:
            yield from _paragraphs(_counted(lines, counts), name, after)


def _counted(lines: Iterable[T], counts: list[int]) -> Iterator[tuple[int, T]]:
    """Yield lines with their numbers, and keep how many there were."""
    for number, line in enumerate(lines, 1):
        counts[-1] = number
        yield number, line


def _paragraphs(lines: Iterable[tuple[int, str]], file: str, after: str) -> Iterator[TextDocument]:
    """Yield runs of lines that are not blank."""
    held: list[str] = []
    first = 0
    for number, line in lines:
        if line.strip():
            first = first if held else number
            held.append(line)
        elif held:
            yield TextDocument("".join(held).rstrip("\n"), file, f"line {first}{after}", first)
            held = []
    if held:
        yield TextDocument("".join(held).rstrip("\n"), file, f"line {first}{after}", first)


def _jsonl(piece: FilePiece, field: str, id_field: str, counts: list[int]) -> Iterator[TextDocument]:
    name = piece.file.name
    with _opened(piece) as (lines, after):
        for number, line in _counted(lines, counts):
            if not line.strip():
                continue
            place = f"line {number}{after}"
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SourceError(f"{name}, {place} is no JSON ({error}). Correct or remove the line.") from error
            if not isinstance(found, dict) or field not in found:
                has = listed(found) if isinstance(found, dict) else type(found).__name__
                raise SourceError(
                    f"{name}, {place} has no {field!r}; it has {has}. Pass field= (--field) for another key."
                )
            own = _id(found.get(id_field), name, place)
            yield TextDocument(_content(found[field], name, place), name, place, number, own)


def _parquet(piece: FilePiece, field: str, id_field: str) -> Iterator[TextDocument]:
    name = piece.file.name
    try:
        file = pyarrow.parquet.ParquetFile(piece.file.path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{name} is no Parquet file ({error}). It was cut off, or has another format.") from error
    with file:
        if field not in file.schema_arrow.names:
            has = listed(file.schema_arrow.names)
            raise SourceError(
                f"{name} has no column {field!r}; it has {has}. Pass field= (--field) for another column."
            )
        columns = [field, id_field] if id_field in file.schema_arrow.names else [field]
        for row, (value, *more) in _values(file, piece, columns):
            content = value.as_py() if pyarrow.types.is_string(value.type) or not value.is_valid else _ids(value)
            own = _id(more[0].as_py() if more else None, name, f"row {row}")
            yield TextDocument(_content(content, name, f"row {row}"), name, f"row {row}", row, own)


def _values(
    file: pyarrow.parquet.ParquetFile, piece: FilePiece, columns: list[str]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the rows of the row groups that begin in a piece: the number in the file, and a value a column."""
    row, total = 0, max(file.metadata.num_rows, 1)
    for group in range(file.metadata.num_row_groups):
        # By rows, not by bytes: only a column's metadata says where it begins, and asking pyarrow for that of a hostile
        # file ends the process.
        start = piece.file.size * row // total
        if piece.start <= min(max(start, 0), piece.file.size - 1) < piece.stop:
            number = row
            for batch in _batches(file, piece.file.name, columns, group):
                yield from enumerate(zip(*(batch.column(name) for name in columns), strict=True), number)
                number += len(batch)
        row += file.metadata.row_group(group).num_rows


def _batches(file: pyarrow.parquet.ParquetFile, name: str, columns: list[str], group: int) -> Iterator[Any]:
    """Yield columns in batches, whole ones only: what is inside is checked before it is looked at."""
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns):
            batch.validate(full=True)  # offsets and texts of a damaged file may point anywhere
            yield batch
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{name} cannot be read ({error}). It is damaged; write it again.") from error


def _ids(value: Any) -> Any:
    """Return a list of ids without making Python integers of them."""
    values = getattr(value, "values", None)
    return value.as_py() if values is None else values.to_numpy(zero_copy_only=False)


def _id(value: Any, name: str, place: str) -> bytes:
    """Return what a document calls itself, whatever type it has; nothing where it says nothing."""
    if value is None or value == b"":
        return b""
    if not isinstance(value, str):
        value = (
            value.hex() if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False, default=str).strip('"')
        )
    found: bytes = value.encode(errors="backslashreplace")  # half a character has no bytes
    if len(found) > LONGEST_ID:
        raise SourceError(
            f"{name}, {place} has an id of {len(found)} bytes: expected at most {LONGEST_ID}. Pass another id= (--id)."
        )
    return found


def _content(value: Any, name: str, place: str) -> Any:
    if isinstance(value, bytes | dict | int | float) or value is None:
        raise SourceError(
            f"{name}, {place} holds {type(value).__name__}, expected a text or a list of token ids. "
            "Choose another field, or remove it."
        )
    return value
