"""Read documents from text, JSONL and Parquet files, one at a time, each with the place it came from.

a.txt        the file, its lines, or its paragraphs
b.jsonl      {"text": "..."}  a line      (or ready ids: {"input_ids": [1, 2]})
c.parquet    a column of texts or of lists of ids

Apart from ``build``: inputs are read here, stores are written there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet

from lading.errors import ConfigError, SourceError
from lading.runtime.shown import listed

SPLITS = ("file", "line", "paragraph")
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class TextDocument:
    """A document and where it came from: its text, or ready token ids."""

    content: Any
    file: str
    place: str = ""


def read_documents(paths: Sequence[Path], *, field: str = "text", split: str = "file") -> Iterator[TextDocument]:
    """Yield the documents of some files, in order."""
    if split not in SPLITS:
        raise ConfigError(f"split={split!r} is unknown: expected one of {', '.join(map(repr, SPLITS))}.")
    if not paths:
        raise ConfigError("there are no files to read. Name at least one text, JSONL or Parquet file.")
    for path in paths:
        if not path.is_file():
            raise SourceError(
                f"{path} is no file. Check the name; directories are given as their files (corpus/*.txt)."
            )
        if path.suffix in (".jsonl", ".ndjson"):
            yield from _jsonl(path, field)
        elif path.suffix == ".parquet":
            yield from _parquet(path, field)
        else:
            yield from _text(path, split)


def _text(path: Path, split: str) -> Iterator[TextDocument]:
    try:
        with path.open(encoding="utf-8") as lines:
            if split == "file":
                yield TextDocument(lines.read(), str(path))
            elif split == "line":
                yield from (TextDocument(line.rstrip("\n"), str(path), f"line {n}") for n, line in enumerate(lines, 1))
            else:
                yield from _paragraphs(lines, str(path))
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is no UTF-8 text ({error}). Convert it, or leave it out.") from error


def _paragraphs(lines: Iterator[str], file: str) -> Iterator[TextDocument]:
    """Yield runs of lines that are not blank."""
    held: list[str] = []
    first = 0
    for number, line in enumerate(lines, 1):
        if line.strip():
            first = first if held else number
            held.append(line)
        elif held:
            yield TextDocument("".join(held).rstrip("\n"), file, f"line {first}")
            held = []
    if held:
        yield TextDocument("".join(held).rstrip("\n"), file, f"line {first}")


def _jsonl(path: Path, field: str) -> Iterator[TextDocument]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise SourceError(f"{path}, line {number} is no JSON ({error}). Correct or remove the line.") from error
            if not isinstance(found, dict) or field not in found:
                has = listed(found) if isinstance(found, dict) else type(found).__name__
                raise SourceError(f"{path}, line {number} has no {field!r}; it has {has}. Pass field= for another key.")
            yield TextDocument(_content(found[field], path, f"line {number}"), str(path), f"line {number}")


def _parquet(path: Path, field: str) -> Iterator[TextDocument]:
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{path} is no Parquet file ({error}). It was cut off, or has another format.") from error
    with file:
        if field not in file.schema_arrow.names:
            has = listed(file.schema_arrow.names)
            raise SourceError(f"{path} has no column {field!r}; it has {has}. Pass field= for another column.")
        row = 0
        for column in _columns(file, path, field):
            for value in column:
                content = value.as_py() if pyarrow.types.is_string(value.type) or not value.is_valid else _ids(value)
                yield TextDocument(_content(content, path, f"row {row}"), str(path), f"row {row}")
                row += 1


def _columns(file: pyarrow.parquet.ParquetFile, path: Path, field: str) -> Iterator[Any]:
    """Yield a column in batches, whole ones only: what is inside is checked before it is looked at."""
    try:
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[field]):
            batch.validate(full=True)  # offsets and texts of a damaged file may point anywhere
            yield batch.column(0)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read ({error}). It is damaged; write it again.") from error


def _ids(value: Any) -> Any:
    """Return a list of ids without making Python integers of them."""
    values = getattr(value, "values", None)
    return value.as_py() if values is None else values.to_numpy(zero_copy_only=False)


def _content(value: Any, path: Path, place: str) -> Any:
    if isinstance(value, bytes | dict | int | float) or value is None:
        raise SourceError(
            f"{path}, {place} holds {type(value).__name__}, expected a text or a list of token ids. "
            "Choose another field, or remove it."
        )
    return value
