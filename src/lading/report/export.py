"""Rows of a run as a file: Parquet, CSV or JSON lines, written aside, batch by batch."""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lading.errors import ConfigError
from lading.runtime.json import plain

TABLES = ("history", "samples", "mix", "exposures", "documents", "rollouts")
_SPREADSHEET = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is a formula to some programs


def write_rows(batches: Callable[[], Iterator[pa.RecordBatch]], path: Path) -> int:
    """Write rows to a file in the form that its name ends with; return how many.

    Args:
        batches: Yields the rows, at least one batch.
        path: The file; one that is there is replaced when all rows are written.
    """
    writers = {".parquet": _parquet, ".csv": _csv, ".jsonl": _jsonl}
    if path.suffix not in writers:
        raise ConfigError(f"{path}: expected a file that ends in {', '.join(writers)}.")
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        rows = writers[path.suffix](batches(), aside)
        os.replace(aside, path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}. Pass --to with a file in a folder that can be "
            "written to."
        ) from error
    finally:
        aside.unlink(missing_ok=True)
    return rows


def _parquet(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    rows, writer = 0, None
    try:
        for batch in batches:
            writer = writer or pq.ParquetWriter(path, batch.schema, compression="zstd")
            writer.write_batch(batch)
            rows += batch.num_rows
    finally:
        if writer is not None:
            writer.close()
    return rows


def _csv(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for batch in batches:
            if not rows and not file.tell():
                writer.writerow(batch.schema.names)
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                writer.writerow([_cell(value) for value in row.values()])
            rows += batch.num_rows
    return rows


def _cell(value: Any) -> Any:
    """Return a value as a cell: numbers as they are, a text that a spreadsheet would run with an apostrophe."""
    value = plain(value) if value is not None else ""
    if isinstance(value, dict | list):
        return json.dumps(value)
    return f"'{value}" if isinstance(value, str) and value.startswith(_SPREADSHEET) else value


def _jsonl(batches: Iterable[pa.RecordBatch], path: Path) -> int:
    rows = 0
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            for row in batch.to_pylist(maps_as_pydicts="lossy"):
                file.write(json.dumps(plain(row)) + "\n")
            rows += batch.num_rows
    return rows
