"""The three tables of a ledger, and how few bytes a row takes.

    batches   one row a rank and batch: 8 bytes of digest, 3 to 4 of loss, 1 to 2 of time, the rest next to nothing
    samples   one row a sample, where no plan predicts it: 3.5 bytes of shuffled index, little else
    events    one row a change of the plan, jump, or checkpoint inside an update; rank 0's alone

Columns that rise evenly are stored as differences, columns of few values as
runs. Frozen by golden files: a change here is a new ``LEDGER_VERSION``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lading.ledger.limits import TIMES
from lading.runtime.arrow import numbers

APPLIED, DELIVERED, SKIPPED = "applied", "delivered", "skipped"
ROLLED_BACK, LEFT_BEHIND = "rolled back", "left behind"  # worked out by readers, never stored
PENDING_REASON = "pending at the checkpoint"

BATCHES = pa.schema(
    [
        ("step", pa.int64()),
        ("update", pa.int64()),
        ("epoch", pa.int32()),
        ("chunk", pa.int32()),
        ("position", pa.int64()),
        ("samples", pa.int32()),
        ("digest", pa.int64()),
        ("content", pa.int64()),
        ("fate", pa.string()),
        ("loss", pa.float32()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("metrics", pa.map_(pa.string(), pa.float64())),
        ("reason", pa.string()),
        ("exceptions", pa.string()),
    ]
)

SAMPLES = pa.schema(
    [
        ("step", pa.int64()),
        ("slot", pa.int32()),
        ("dataset", pa.int32()),
        ("index", pa.int64()),
        ("content", pa.int64()),
    ]
)

EVENTS = pa.schema(
    [
        ("step", pa.int64()),
        ("kind", pa.string()),
        ("event", pa.string()),
        ("time", pa.timestamp("ms", tz="UTC")),
    ]
)

SCHEMAS = {"batches": BATCHES, "samples": SAMPLES, "events": EVENTS}
TABLES = tuple(SCHEMAS)

_RISING = {
    "batches": ("step", "update", "epoch", "chunk", "position", "samples", "time"),
    "samples": ("step", "slot", "index"),
    "events": ("step", "time"),
}
_FEW_VALUES = {"batches": ["fate", "reason"], "samples": ["dataset"], "events": ["kind"]}
# What rows may hold: whoever made the files may have written anything into them.
_STEPS, _INT32, _INT64 = (1 << 62) - 1, (1 << 31) - 1, (1 << 63) - 1
_RANGES = {
    "batches": {
        "step": (0, _STEPS),
        "update": (0, _INT64),
        "epoch": (0, _INT32),
        "chunk": (0, _INT32),
        "position": (0, _STEPS),
        "samples": (0, _INT32),
        "digest": (-_INT64 - 1, _INT64),
        "time": TIMES,
    },
    "samples": {"step": (0, _STEPS), "slot": (0, _INT32), "dataset": (0, _INT32), "index": (0, _INT64)},
    "events": {"step": (0, _STEPS), "time": TIMES},
}
_MAY_MISS = ("update", "chunk")
_WORDS: dict[str, dict[str, tuple[str, ...] | None]] = {
    "batches": {"fate": (APPLIED, DELIVERED, SKIPPED)},
    "samples": {},
    "events": {"kind": None, "event": None},
}
_GROUP_ROWS = {"batches": 1 << 14, "samples": 1 << 18, "events": 1 << 14}


def write_table(table: pa.Table, name: str, where: Any) -> None:
    """Write a table as Parquet."""
    pq.write_table(
        table,
        where,
        compression="zstd",
        use_dictionary=_FEW_VALUES[name],
        column_encoding=dict.fromkeys(_RISING[name], "DELTA_BINARY_PACKED"),
        # Statistics only where readers prune by them: shuffled columns span everything anyway.
        write_statistics=["step"],
        row_group_size=_GROUP_ROWS[name],
        write_page_checksum=True,
        store_schema=False,
    )


def typed(table: pa.Table, name: str, columns: list[str] | None = None) -> pa.Table:
    """Return what was read with the types of a ledger's table, and refuse values that no ledger writes.

    A cast, where none is needed, would open all of Arrow.

    Args:
        table: The rows.
        name: Whose types.
        columns: The columns that were read, ``fate`` as the codes of a dictionary; None: all, as they are.
    """
    wanted = SCHEMAS[name] if columns is None else _coded(name, columns)
    table = table if table.schema.equals(wanted) else table.cast(wanted)
    table.validate(full=True)  # lengths of buffers, and that strings are UTF-8
    for column, (low, high) in _RANGES[name].items():
        if column in table.column_names:
            _check_range(column, *numbers(table[column]), low, high, may_miss=column in _MAY_MISS)
    for column, words in _WORDS[name].items():
        if column in table.column_names:
            _check_words(column, table[column], words)
    return table


def _check_range(column: str, values: Any, known: Any, low: int, high: int, *, may_miss: bool) -> None:
    if not may_miss and not known.all():
        raise ValueError(f"row {int(np.flatnonzero(~known)[0])} has no {column}")
    wrong = np.flatnonzero(known & ((values < low) | (values > high)))
    if len(wrong):
        raise ValueError(f"row {int(wrong[0])} has {column} {values[wrong[0]]}, expected {low} to {high}")


def _check_words(column: str, values: pa.ChunkedArray, words: tuple[str, ...] | None) -> None:
    if values.null_count:
        raise ValueError(f"a row has no {column}")
    coded = [chunk.dictionary if hasattr(chunk, "dictionary") else chunk for chunk in values.chunks]
    strange = set() if words is None else {word for chunk in coded for word in chunk.to_pylist()} - set(words)
    if strange:
        raise ValueError(f"a row has {column} {next(iter(strange))!r}, expected one of {', '.join(words or ())}")


def _coded(name: str, columns: list[str]) -> pa.Schema:
    codes = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([(c, codes if c == "fate" else SCHEMAS[name].field(c).type) for c in columns])


def latest_rows(table: pa.Table) -> pa.Table:
    """Keep one row of ``batches`` a step (and attempt and rank, where these are columns): the settled one, or the last.

    A batch that was written as delivered is written again when its fate is known.
    """
    if not len(table):
        return table
    keys = zip(
        *(table[name].to_pylist() for name in ("attempt", "rank", "step") if name in table.column_names), strict=True
    )
    best: dict[tuple[int, ...], int] = {}
    fates = table["fate"].to_pylist()
    for row, key in enumerate(keys):
        if key not in best or fates[row] != DELIVERED or fates[best[key]] == DELIVERED:
            best[key] = row
    return table if len(best) == len(table) else table.take(sorted(best.values()))
