"""The hash of stored rows: what the specification says, whatever files the rows are in."""

from __future__ import annotations

import hashlib
import itertools
import math
import struct
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given, strategies as st

from lading.ledger.row_hash import StoredRows, rows_hash
from lading.ledger.schema import SCHEMAS
from lading.ledger.tables import TABLES

texts = st.none() | st.text(max_size=8)
floats = st.none() | st.floats(width=32)
small, large = st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 62) - 1)
times = st.integers(0, 2_000_000_000_000)
steps = st.integers(0, 12)
fates = st.sampled_from(["applied", "delivered", "skipped"])
metrics = st.none() | st.lists(st.tuples(st.text(max_size=3), st.floats()), max_size=3)
VALUES = {
    "batches": st.tuples(
        *(steps, st.none() | large, small, st.none() | small, large, small, large, st.none() | large, fates, floats),
        *(times, metrics, texts, texts),
    ),
    "samples": st.tuples(steps, small, small, large, st.none() | large),
    "events": st.tuples(steps, st.text(max_size=4), st.text(max_size=9), times),
    "row_losses": st.tuples(steps, small, st.floats(width=32)),
    "rollouts": st.tuples(
        *(steps, large, large, small, large, st.none() | large, small, large, floats, floats, floats), times
    ),
    "uses": st.tuples(steps, small, large, large, floats),
    "fates": st.tuples(steps, large, st.sampled_from(["stale", "filtered"]), texts, times),
}


def _table(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = SCHEMAS[name]
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _value(value: Any, kind: pa.DataType) -> bytes:
    """Return a value as docs/ledger-format.md says it."""
    known = bytes([value is not None])
    if pa.types.is_string(kind):
        text = (value or "").encode()
        return known + struct.pack("<I", len(text)) + text
    if pa.types.is_map(kind):
        entries = [_value(k, pa.string()) + _value(v, pa.float64()) for k, v in value or ()]
        return known + struct.pack("<I", len(entries)) + b"".join(entries)
    if pa.types.is_floating(kind):
        wide = kind == pa.float64()
        if value is not None and math.isnan(value):
            return known + bytes.fromhex("7ff8000000000000" if wide else "7fc00000")[::-1]
        return known + struct.pack("<d" if wide else "<f", value or (0.0 if value is None else value))
    if isinstance(value, datetime):
        value = round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return known + int(value or 0).to_bytes(kind.bit_width // 8, "little", signed=True)


def _slow_hash(tables: dict[str, pa.Table]) -> tuple[int, str]:
    """Work the hash out row by row."""
    lines, count = [], 0
    for name in TABLES:
        rows = tables[name].to_pylist(maps_as_pydicts=None)
        if name == "batches":
            best: dict[int, dict[str, Any]] = {}
            for row in rows:
                known = best.get(row["step"])
                if known is None or row["fate"] != "delivered" or known["fate"] == "delivered":
                    best[row["step"]] = row
            rows = list(best.values())
        rows.sort(key=lambda row: (row["step"], row.get("slot", 0)))
        content = b"".join(_value(row[f.name], f.type) for row in rows for f in SCHEMAS[name])
        count += len(rows)
        if rows:
            lines.append(f"{name} {len(rows)} {hashlib.sha256(content).hexdigest()}\n")
    return count, hashlib.sha256("".join(lines).encode()).hexdigest()


def _pieces(table: pa.Table, cuts: list[int]) -> list[StoredRows]:
    places = sorted({0, len(table), *(cut % (len(table) + 1) for cut in cuts)})
    parts = [table.slice(first, stop - first) for first, stop in itertools.pairwise(places)]
    return [StoredRows(min(part["step"].to_pylist()), lambda part=part: part) for part in parts]


@given(st.fixed_dictionaries({name: st.lists(row, max_size=12) for name, row in VALUES.items()}), st.lists(large))
def test_the_hash_is_what_the_specification_says_however_the_rows_are_cut(rows, cuts):
    """Every type, nulls, NaN, rows out of order, batches written twice, pieces that overlap."""
    tables = {name: _table(name, some) for name, some in rows.items()}

    found = rows_hash({name: _pieces(table, cuts) for name, table in tables.items()})

    assert found == _slow_hash(tables)


def test_more_rows_than_are_encoded_at_once_are_hashed_alike():
    """Blocks of rows, and slices of columns with texts and maps, join without a seam."""
    rows = [(i, None, 0, 0, i, 8, i, None, "applied", 0.5, i, [("lr", 0.1 * i)], None, None) for i in range(40_000)]
    rows[20_000] = (*rows[20_000][:11], None, "overflow", "[]")
    table = _table("batches", rows)

    assert rows_hash({"batches": _pieces(table, [17_000])}) == _slow_hash(
        {**{name: _table(name, []) for name in TABLES}, "batches": table}
    )


def test_every_bit_of_a_row_counts():
    """A null is no zero, an empty text no null, and the sign of a zero shows."""
    row = (0, 0, 0, 0, 0, 8, 0, 0, "applied", 0.0, 0, [], "", "")
    changes = {1: None, 3: None, 7: None, 9: -0.0, 11: None, 12: None, 13: "x", 8: "skipped", 10: 1}
    others = [tuple(changes[i] if i == j else v for i, v in enumerate(row)) for j in changes]

    found = {rows_hash({"batches": _pieces(_table("batches", [r]), [])}).sha256 for r in [row, *others]}

    assert len(found) == len(others) + 1


def test_a_ledger_is_closed_without_pandas(tmp_path):
    """Whoever has it installed waited a third of a second for it at the end of a script that does not use it."""
    script = (
        "import sys, numpy as np\nfrom lading import Ledger, NumpyLoader\n"
        f"with Ledger({str(tmp_path / 'run')!r}) as ledger:\n"
        "    for _, bill in NumpyLoader(np.arange(20), 4, tracker=ledger).with_bills():\n"
        "        ledger.commit(bill, loss=1.0, lr=0.5)\n"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", script], check=True)
