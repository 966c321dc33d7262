"""Damage and malice, seeded: bytes that were changed, and JSON that is valid and wrong."""

from __future__ import annotations

import copy
import io
import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    1 << 31,
    (1 << 62) + 1,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63) - 1,
    1 << 200,
    0.5,
    -0.0,
    1e308,
    "",
    "0",
    "x",
    "../../etc/passwd",
    "/etc/passwd",
    "a\x00b",
    "\x1b[2J",
    "\ud800",
    "'; COPY (SELECT 1) TO 'out.csv'; --",
    "9" * 5000,
    "x" * 100_000,
    [],
    [[]],
    [1],
    [None],
    [1, "a", {}],
    {},
    {"a": 1},
    {"kind": "block"},
    {"class_path": "os.system", "init_args": {"command": "true"}},
)


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with flips, cuts, insertions, deletions or repetitions."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        size = len(found)
        at = chance.randrange(size + 1)
        until = min(size, at + chance.choice((1, 1, 2, 4, 16, 200)))
        kind = chance.randrange(7)
        if kind == 0 and size:
            found[at % size] ^= 1 << chance.randrange(8)
        elif kind == 1 and size:
            found[at % size] = chance.randrange(256)
        elif kind == 2:
            del found[at:]
        elif kind == 3:
            del found[at:until]
        elif kind == 4:
            found[at:at] = chance.randbytes(chance.choice((1, 4, 8)))
        elif kind == 5:
            found[at:at] = found[at:until] * chance.choice((1, 2, 50))
        else:
            other = chance.randrange(size + 1)
            found[at:until] = found[other : other + until - at]
    return bytes(found)


def changed_json(value: Any, chance: random.Random) -> Any:
    """Return a copy of a JSON value with one to three places changed: another value, a key less, more or renamed."""
    found = [copy.deepcopy(value)]
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holder, key = chance.choice(list(_places(found)))
        kind = chance.randrange(6)
        if kind <= 2:
            holder[key] = copy.deepcopy(chance.choice(NASTY))
        elif kind == 3:
            del holder[key]
        elif kind == 4 and isinstance(holder, dict):
            holder[str(chance.choice(("more", "a", "../x", "\x1b")))] = chance.choice(NASTY)
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif isinstance(holder[key], int) and not isinstance(holder[key], bool):
            holder[key] += chance.choice((-1, 1, 1 << 40))
        if not found:
            return None
    return found[0]


def changed_text(data: bytes, chance: random.Random) -> bytes:
    """Return changed JSON, as JSON or as bytes."""
    if chance.random() < 0.3:
        return changed_bytes(data, chance)
    return json.dumps(changed_json(json.loads(data), chance)).encode()


def changed_yaml(data: bytes, chance: random.Random) -> bytes:
    """Return changed YAML: half of the time a value that is valid and wrong, written as JSON, which is YAML."""
    if chance.random() < 0.5:
        return changed_bytes(data, chance)
    return json.dumps(changed_json(yaml.safe_load(data), chance)).encode()


def changed_parquet(data: bytes, chance: random.Random) -> bytes:
    """Return a Parquet file with one to three values changed, a row less or more, or a column less."""
    table = pq.read_table(io.BytesIO(data))
    for _ in range(chance.choice((1, 1, 3))):
        column = chance.randrange(table.num_columns)
        field, values = table.schema.field(column), table[column].to_pylist()
        if values:
            values[chance.randrange(len(values))] = _nasty_of(field.type, chance)
        table = table.set_column(column, field, pa.array(values, field.type))
    kind = chance.randrange(10)
    if kind == 0:
        table = table.slice(1)
    elif kind == 1:
        table = pa.concat_tables([table, table])
    elif kind == 2:
        table = table.remove_column(chance.randrange(table.num_columns))
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _nasty_of(kind: pa.DataType, chance: random.Random) -> Any:
    """Return a value that a column of a type can hold and should not."""
    if pa.types.is_integer(kind):
        lowest = -(1 << (kind.bit_width - 1)) if pa.types.is_signed_integer(kind) else 0
        highest = lowest + (1 << kind.bit_width) - 1
        return chance.choice((lowest, highest, 0, 1, 7, min(highest, 1 << 40), highest // 2, None))
    if pa.types.is_floating(kind):
        return chance.choice((float("nan"), float("inf"), -1e308, 1e308, 0.0, None))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return chance.choice(
            [v for v in NASTY if isinstance(v, str) and v != "\ud800"] + [None, "[1]", "{", '{"a": NaN}']
        )
    if pa.types.is_dictionary(kind):
        return chance.choice((None, "x", "applied", "\x1b[2J"))
    return None


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value inside a container."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found
