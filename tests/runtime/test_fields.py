"""One reader with checked fields: a value of the right type and range, or an error that names the place."""

from __future__ import annotations

import contextlib
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import CorruptLedgerError, PlanError
from lading.runtime.fields import (
    COUNT,
    REASON,
    SHA256,
    SIZE,
    Fields,
    Origin,
    given as given_or,
    is_bare_name,
    named,
    nullable,
    optional,
    record_of,
    row_of,
    tuple_of,
)

ORIGIN = Origin("runs/7/launch.json", CorruptLedgerError, "Restore it from a copy.")
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=8,
)
READERS = [
    lambda f: f.integer("x", low=0, high=9),
    lambda f: f.number("x", low=0, high=9),
    lambda f: f.flag("x"),
    lambda f: f.text("x", longest=2),
    lambda f: f.text("x", choices=("a", "b")),
    lambda f: f.hexadecimal("x", digits=4),
    lambda f: f.file_name("x"),
    lambda f: f.record("x").integer("y"),
    lambda f: f.records("x", least=1)[0].text("y"),
    lambda f: f.integers("x", low=0, most=3),
    lambda f: f.texts("x", most=3),
    lambda f: f.items("x").integer(0),
    lambda f: given_or(Fields.integer, low=0)(f, "x"),
    lambda f: nullable(COUNT)(f, "x"),
    lambda f: optional(SIZE, 1)(f, "x"),
    lambda f: tuple_of(row_of(COUNT, Fields.text), least=1)(f, "x"),
    lambda f: named(SHA256)(f, "x"),
    lambda f: record_of(dict, {"y": COUNT})(f, "x"),
    lambda f: REASON(f, "x"),
    lambda f: f.each({"x": COUNT}, "y"),
    lambda f: f.read({"x": Fields.texts}),
    lambda f: f.only("y"),
    lambda f: f.value("x"),
]


@settings(max_examples=300, deadline=None)
@given(anything)
def test_any_value_is_read_or_refused_by_the_origins_error(value):
    """No reader lets a TypeError, KeyError or RecursionError out, whatever it is given."""
    for read in READERS:
        for values in ({"x": value}, value):
            with contextlib.suppress(CorruptLedgerError):
                read(Fields(values, ORIGIN))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64) | anything.map(lambda v: json.dumps(v).encode()))
def test_any_bytes_are_json_or_refused(data):
    """Bytes of any kind end in a value or in the origin's error."""
    with contextlib.suppress(CorruptLedgerError):
        ORIGIN.json(data)


def test_an_error_names_file_place_expected_and_found():
    """The reader of a message knows which file to look at, and where in it."""
    record = ORIGIN.record(b'{"attempts": [{"start_step": "1); DROP"}]}')

    with pytest.raises(CorruptLedgerError) as caught:
        record.records("attempts")[0].integer("start_step", low=0, high=9)

    assert str(caught.value) == (
        "runs/7/launch.json: attempts[0].start_step: expected an integer from 0 to 9, found '1); DROP'. "
        "Restore it from a copy."
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [(True, "an integer"), (1.0, "an integer"), (None, "an integer"), (10, "from 0 to 9"), (1 << 99999, "100000 bits")],
    ids=str.split("flag float null large huge"),
)
def test_what_is_no_integer_in_range_is_refused(value, words):
    """Booleans and floats are no integers, and an integer too long to be written is described."""
    with pytest.raises(PlanError, match=words):
        Fields({"x": value}, Origin("p", PlanError)).integer("x", low=0, high=9)


def test_integers_of_numpy_become_pythons_own():
    """States come back from checkpoints with NumPy's scalars in them."""
    found = Fields({"x": np.int64(3)}, ORIGIN).integer("x")

    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"a": 1, "a": 2}', "every key once, found 'a' twice"),
        (b'{"a": NaN}', "finite numbers, found NaN"),
        (b"[" * 100_000, "levels|lists"),
        (b"[" * 80 + b"]" * 80, "64 levels"),
        (b'{"a": ' * 500 + b"1" + b"}" * 500, "64 levels"),
        (b"1" * 5000, "JSON"),
        (b'"\\ud800"', "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" + b"[]," * 1_000_001 + b"1]", "lists and objects"),
        (b"", "JSON"),
    ],
)
def test_json_that_hides_or_bloats_is_refused(data, words):
    """Doubled keys, deep nesting, halves of characters, floods of lists: refused with a sentence."""
    with pytest.raises(CorruptLedgerError, match=words):
        ORIGIN.json(data)


def test_files_that_are_none_are_refused_without_waiting(tmp_path):
    """A missing file, a folder, a pipe and a huge file end at once."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "huge").write_bytes(b"x" * 100)

    for name, words in [
        ("gone", "No such file"),
        (".", "something else"),
        ("pipe", "something else"),
        ("a\0b", "null"),
    ]:
        with pytest.raises(CorruptLedgerError, match=words):
            Origin(str(tmp_path / name), CorruptLedgerError).read()
    with pytest.raises(CorruptLedgerError, match="at most 99 bytes"):
        Origin(tmp_path / "huge", CorruptLedgerError).read(99)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\x1bb", "a\0", "‮a"])
def test_names_that_leave_their_folder_are_no_bare_names(name):
    """A file named in a file stays where that file is."""
    assert not is_bare_name(name)
    assert is_bare_name("part-000041.parquet")


def test_items_of_what_is_no_list_are_refused():
    """A number in the place of a list ended questions with a TypeError."""
    with pytest.raises(CorruptLedgerError, match=r"expected a list of 0 to \d+ items, found 5"):
        ORIGIN.items("5")
