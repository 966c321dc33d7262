"""Rows as the tail holds them: what is packed is what is read, and nothing else is."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.identity import Bill
from lading.ledger.packed import joined, layout, packed_names
from lading.ledger.schema import SCHEMAS, rows_table, typed
from lading.ledger.tables import FLOAT32, FORMATS, INT32, INT64, MAP, TABLES, TEXT, TIME
from lading.report import open_run
from lading.runtime import compiled

_WHOLE = {INT64: st.integers(-(1 << 63), (1 << 63) - 1), INT32: st.integers(-(1 << 31), (1 << 31) - 1)}
_OTHER = {
    FLOAT32: st.floats(width=32),
    TEXT: st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    MAP: st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.floats(), max_size=3).map(
        lambda numbers: list(numbers.items())
    ),
}


def values(name: str, column: str) -> st.SearchStrategy:
    """Return what a column may hold."""
    found = FORMATS[name]
    if column in found.ranges:
        some = st.integers(*found.ranges[column])
        return st.none() | some if column in found.may_miss else some
    if column in found.words:
        return st.sampled_from(found.words[column] or ("a word", "é"))
    kind = found.columns[column]
    return st.none() | (_WHOLE | _OTHER | {TIME: _WHOLE[INT64]})[kind]


def rows_of(name: str) -> st.SearchStrategy:
    return st.lists(st.tuples(*(values(name, column) for column in FORMATS[name].columns)), min_size=1, max_size=6)


def plain(value: object) -> object:
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return [(key, plain(one)) for key, one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_packed_is_what_is_read(name: str, data: st.DataObject):
    """All tables, all columns, there or not; in one piece or in several."""
    rows, more = data.draw(rows_of(name)), data.draw(rows_of(name))
    packing = layout(name)
    pieces = [packing.of_rows([packing.pack(row) for row in some]) for some in (rows, more)]

    table = typed(rows_table(name, [packing.from_bytes(piece.to_bytes()) for piece in pieces]), name)

    times = [field.name for field in SCHEMAS[name] if field.name == "time"]
    for time in times:
        table = table.set_column(table.schema.get_field_index(time), time, table[time].cast("int64"))
    found = [tuple(map(plain, row.values())) for row in table.to_pylist(maps_as_pydicts=None)]
    assert found == [tuple(map(plain, row)) for row in (*rows, *more)]
    assert joined(pieces).rows == len(found) and pieces[0].first_step == rows[0][0]
    assert pieces[1].last_step == more[-1][0]


def twin(call):
    """Return what a call returns without the compiled kernels."""
    kernels, compiled.kernels = compiled.kernels, None
    try:
        return call()
    finally:
        compiled.kernels = kernels


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_compiled_core_packs_a_row_as_its_twin(name: str, data: st.DataObject):
    """All tables, all columns; losses that four bytes do not hold, too."""
    row = data.draw(rows_of(name))[0]
    row = tuple(data.draw(st.floats()) if isinstance(value, float) else value for value in row)

    assert layout(name).pack(row) == twin(lambda: layout(name).pack(row))


@pytest.mark.parametrize("name", ["rollouts", "uses", "fates"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_columns_are_packed_as_their_rows_are(name: str, data: st.DataObject):
    """With and without the compiled core; columns that are lists, arrays, or the same for all rows."""
    rows, packing = data.draw(rows_of(name)), layout(name)
    columns = [list(column) for column in zip(*rows, strict=True)]
    for place, column in enumerate(columns):
        if len(set(map(repr, column))) == 1:
            columns[place] = column[0]
        elif {type(value) for value in column} in ({int}, {float}) and not any(value != value for value in column):
            columns[place] = np.array(column)
    given_columns = len(rows), tuple(columns)

    packed = b"".join(packing.pack(row) for row in rows)
    assert b"".join(packing.pack_columns(*given_columns)) == packed
    assert b"".join(twin(lambda: packing.pack_columns(*given_columns))) == packed


def test_a_score_that_nobody_knows_is_not_there():
    """NaN in an array of scores, with and without the compiled core."""
    columns = 0, [0, 1], 0, 0, 5, None, np.array([3, 4]), [7, None], np.array([0.5, math.nan]), None, 1.5, 9
    rows = [(0, 0, 0, 0, 5, None, 3, 7, 0.5, None, 1.5, 9), (0, 1, 0, 0, 5, None, 4, None, None, None, 1.5, 9)]

    packed = b"".join(map(layout("rollouts").pack, rows))
    assert layout("rollouts").pack_columns(2, columns) == [packed]
    assert b"".join(twin(lambda: layout("rollouts").pack_columns(2, columns))) == packed
    with pytest.raises(ValueError, match="zip"):
        layout("rollouts").pack_columns(3, columns)


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_compiled_core_refuses_the_rows_that_its_twin_refuses(name: str, data: st.DataObject):
    """Rows of which some bytes were changed: the same are refused, for the same reason."""
    packing = layout(name)
    row = bytearray(packing.pack(data.draw(rows_of(name))[0]))
    for _ in range(data.draw(st.integers(0, 3))):
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.sampled_from([0, 1, 127, 128, 255]))

    def taken() -> object:
        try:
            return packing.of_rows([bytes(row)])
        except ValueError as error:
            return str(error)

    assert taken() == twin(taken)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=9), st.booleans(), st.sampled_from([np.int32, np.int64]), st.data())
def test_the_compiled_core_packs_names_as_its_twin(padding, has_content, dtype, data):
    """With and without content and padding; columns of 4 and 8 bytes; what no row holds is refused by both."""
    rows = len(padding)
    slots = np.array([data.draw(st.sampled_from([0, 1, 7, 1 << 31])) for _ in range(rows)], np.int64)
    index = np.array([data.draw(st.integers(-(1 << 63), (1 << 63) - 1)) for _ in range(rows)], np.int64)
    content = index.view(np.uint64) * np.uint64(3) if has_content else None
    names = {"dataset_idx": np.arange(rows, dtype=dtype), "idx": index, "is_padding": np.array(padding, bool)}
    bill = Bill("b", 5, 0, None, 0, slots=slots, global_size=rows, **names)

    def packed() -> bytes | None:
        try:
            return packed_names(bill, content)
        except ValueError:
            return None

    assert packed() == twin(packed)
    assert (packed() is None) == bool((slots[~bill.is_padding] > 7).any())


@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_other_bytes_are_refused_or_are_rows_that_a_ledger_writes(name: str, data: st.DataObject):
    """Whoever made the file may have written anything, with the right checksums."""
    packing = layout(name)
    content = bytearray(packing.of_rows([packing.pack(row) for row in data.draw(rows_of(name))]).to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content

    try:
        found = packing.from_bytes(bytes(content))
        packing.check([found])
    except ValueError:
        return
    typed(rows_table(name, [found]), name)


def test_texts_that_moved_from_one_piece_to_another_are_refused():
    """Pieces are checked together, and each answers for its own texts."""
    packing = layout("events")
    pieces = [packing.of_rows([packing.pack((step, "note", "{}", 0))]) for step in (0, 1)]
    moved = [pieces[0]._replace(texts=pieces[0].texts + b"n"), pieces[1]._replace(texts=pieces[1].texts[1:])]

    packing.check(pieces)

    with pytest.raises(ValueError, match="other texts"):
        packing.check(moved)


def test_a_loss_that_four_bytes_do_not_hold_is_infinite():
    """As in Parquet."""
    packing = layout("row_losses")
    rows = packing.of_rows([packing.pack((0, 0, 1e300)), packing.pack((0, 1, -1e39)), packing.pack((0, 2, 3e38))])

    assert rows_table("row_losses", [rows])["loss"].to_pylist() == [math.inf, -math.inf, float(np.float32(3e38))]


def test_a_number_that_its_column_does_not_hold_is_refused():
    """Not wrapped around."""
    with pytest.raises(struct.error):
        layout("row_losses").pack((0, 1 << 40, 0.5))
    columns = {"step": np.zeros(1, np.int64), "slot": np.full(1, 1 << 40), "loss": np.zeros(1, np.float32)}
    with pytest.raises(ValueError, match="slot beyond 4 bytes"):
        layout("row_losses").of_columns(columns)


def test_training_opens_arrow_when_a_part_is_closed(tmp_path: Path):
    """Its import takes longer than a first batch; a ledger that nobody closes is complete all the same."""
    script = f"""
import sys
from lading import Ledger, NumpyLoader
import numpy as np
ledger = Ledger({str(tmp_path)!r})
for batch, bill in NumpyLoader(np.arange(64), 8, tracker=ledger).with_bills():
    ledger.commit(bill, loss=1.0, lr=0.5)
ledger.flush()
assert "pyarrow" not in sys.modules and "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)

    assert open_run(tmp_path).verify().steps == 8
    assert open_run(tmp_path).history.dicts()[3]["metrics"] == {"lr": 0.5}


def test_a_killed_attempt_keeps_what_was_flushed(tmp_path: Path):
    """Its rows are in the tail alone."""
    script = f"""
import os, signal
from lading.ledger import Ledger
from lading.order import Plan
plan = Plan.make({{"code": 64}}, batch_size=8, seed=3)
ledger = Ledger({str(tmp_path)!r}, plan)
for step in range(6):
    ledger.commit(plan.bill(step), update=step, loss=step / 4, **{{"lernrate \u00e9": 0.5}})
ledger.skip(plan.bill(6), "no n\u00fcmber")
ledger.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9

    run = open_run(tmp_path)

    assert run.verify().holds and run.step(6).reason == "no nümber"
    assert [row["loss"] for row in run.history.dicts()][:6] == [step / 4 for step in range(6)]
    assert run.history.dicts()[2]["metrics"] == {"lernrate é": 0.5}
