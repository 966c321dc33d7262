"""What is read into a ledger's tables is what a ledger writes, or is refused."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from lading.ledger.schema import SCHEMAS, typed
from lading.ledger.tables import APPLIED

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
BATCH = {
    "step": 3, "update": None, "epoch": 0, "chunk": None, "position": 12, "samples": 4, "digest": -5, "content": None,
    "fate": APPLIED, "loss": float("nan"), "time": NOW, "metrics": [("lr", 0.1)], "reason": None, "exceptions": None,
}  # fmt: skip
ROWS = {
    "batches": (SCHEMAS["batches"], BATCH),
    "samples": (SCHEMAS["samples"], {"step": 3, "slot": 0, "dataset": 1, "index": 7, "content": None}),
    "events": (SCHEMAS["events"], {"step": 3, "kind": "jump", "event": "{}", "time": NOW}),
}


def _table(name: str, **changes: object) -> pa.Table:
    schema, row = ROWS[name]
    return pa.Table.from_pylist([row, {**row, **changes}], schema)


@pytest.mark.parametrize("name", ROWS)
def test_what_a_ledger_writes_is_read(name):
    """Missing updates, chunks and losses included."""
    assert typed(_table(name), name).num_rows == 2


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("batches", "step", None), ("batches", "step", -1), ("batches", "step", 1 << 62), ("batches", "epoch", None),
        ("batches", "chunk", -1), ("batches", "update", -1), ("batches", "samples", -1), ("batches", "digest", None),
        ("batches", "time", None), ("batches", "fate", None), ("batches", "fate", "forgotten"),
        ("batches", "position", -1), ("samples", "step", None), ("samples", "slot", -1), ("samples", "dataset", None),
        ("samples", "index", -1), ("events", "kind", None), ("events", "event", None), ("events", "time", None),
    ],
)  # fmt: skip
def test_what_no_ledger_writes_is_refused_by_row_and_column(name, column, value):
    """Whoever made the files may have written anything into them, checksums and all."""
    with pytest.raises(ValueError, match=column):
        typed(_table(name, **{column: value}), name)


def test_times_that_no_calendar_has_are_refused():
    """They ended questions with an OverflowError."""
    table = _table("batches")
    late = pa.array([0, 1 << 60], pa.int64()).cast(pa.timestamp("ms", tz="UTC"), safe=False)
    table = table.set_column(table.schema.get_field_index("time"), "time", late)

    with pytest.raises(ValueError, match="row 1 has time"):
        typed(table, "batches")


def test_strings_that_are_no_text_are_refused():
    """They ended questions with a UnicodeDecodeError."""
    reasons = pa.array([b"fine", b"\x99"], pa.binary()).view(pa.string())
    table = _table("batches")
    table = table.set_column(table.schema.get_field_index("reason"), "reason", reasons)

    with pytest.raises(pa.ArrowInvalid, match="UTF8"):
        typed(table, "batches")
