"""Whatever numbers the compiled kernels are given: a result or an error, and no memory but their own.

A crash ends the process, so any example that comes back passes. ``make test-sanitized`` runs these under the address
and undefined-behaviour sanitizers, which also see what did not crash.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.runtime import compiled

pytestmark = pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")

DTYPES = (np.int64, np.uint64, np.int32, np.uint8)
edges = st.sampled_from([0, 1, 2, 3, 8, 63, 64, 65, 4096, 4097, 2**31 - 1, 2**31, 2**60, 2**63 - 1, -1, -(2**63)])
small = st.integers(0, 12)
values = st.one_of(small, small, edges, st.integers(-(2**63), 2**63 - 1))
rows_of = st.one_of(st.integers(1, 40), st.sampled_from([0, -1, 1000, 2**62]))


@st.composite
def columns(draw, dtypes=(np.int64, np.int64, np.int64, *DTYPES)):
    """A column of any numbers and width; most have 8 bytes a number, as the kernels want them."""
    numbers = draw(st.lists(values, max_size=12))
    near = [int(n) & 0x7F if draw(st.booleans()) else n for n in numbers]
    return np.array(near, dtype=np.int64).astype(draw(st.sampled_from(dtypes)))


ARGUMENTS = {
    "fold": "nn",
    "key_of_three": "nnnn",
    "digest": "ccc",
    "digest_of_slots": "ncccc",
    "digests": "ncccc",
    "owners": "ccc",
    "owner_counts": "nnncnnc",
    "hash_rows": "cnnc",
    "fold_rows": "coc",
    "permute": "ccccc",
    "unpermute": "ccccc",
    "extent": "c",
    "integers": "vc",
    "counts": "cnc",
    "group": "ccncc",
    "num_pieces": "corbb",
    "first_fit": "corbbnnc",
    "best_fit": "corbbnnc",
    "group_pieces": "corbbccccc",
    "stream_counts": "corbb",
    "stream": "corbbcccc",
    "fill": "cbccccccrnbccccoo",
    "digest_of_content": "nccc",
    "pack_names": "ncccoc",
    "pack_row": "lt",
    "pack_columns": "lnd",
    "check_rows": "clccn",
}
texts = st.text(st.characters(), max_size=5)
pairs = st.lists(st.tuples(texts, st.floats()) | st.tuples(texts) | values, max_size=3)
anything = st.none() | values | st.floats() | texts | pairs | st.integers(-(2**70), 2**70)
KINDS = {"n": values, "c": columns(), "o": st.one_of(st.none(), columns()), "b": st.booleans(), "r": rows_of}
given_columns = st.lists(anything | st.lists(anything, max_size=3) | columns(), max_size=18).map(tuple)
KINDS |= {
    "d": given_columns,
    "l": st.text("qifI?", max_size=18).map(str.encode),
    "t": st.lists(anything, max_size=18).map(tuple),
}
KINDS |= {"v": st.lists(values | anything, max_size=12) | anything}
METHODS = {
    "rounds": "nccnocc",
    "step": "nncnnncc",
    "counts": "nc",
    "in_order": "ncc",
    "positions": "ncc",
    "places": "ncnccnc",
    "nodes": "",
}


def tried(call, arguments):
    """Call a kernel with anything."""
    with contextlib.suppress(ValueError, TypeError, OverflowError, MemoryError, BufferError):
        call(*arguments)


@pytest.mark.parametrize("name", ARGUMENTS)
@given(st.data())
def test_any_arguments(name, data):
    """Columns of any lengths, widths and values."""
    tried(getattr(compiled.kernels, name), [data.draw(KINDS[kind]) for kind in ARGUMENTS[name]])


@pytest.mark.parametrize("name", METHODS)
@given(st.lists(st.integers(0, 1 << 29), min_size=1, max_size=4), st.data())
def test_any_arguments_of_a_tree(name, weights, data):
    """Trees of any weights, asked for anything."""
    w = np.array(weights, dtype=np.int64)
    by_weight = np.argsort(w, kind="stable")[int((w == 0).sum()) :]
    residuals = np.array([data.draw(values) for _ in weights], dtype=np.int64)
    try:
        tree = compiled.kernels.Tree(w, residuals, by_weight)
    except (ValueError, OverflowError):
        return
    tried(getattr(tree, name), [data.draw(KINDS[kind]) for kind in METHODS[name]])


@given(st.data(), st.integers(1, 12), st.integers(0, 5))
def test_an_index_that_holds_anything_is_filled_or_refused(data, row_length, rows):
    """Columns of the right lengths and any values: what a damaged file on disk would give."""
    pieces, documents = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 4))

    def column(count, dtype=np.int64):
        return np.array([data.draw(values) for _ in range(count)], dtype=np.int64).astype(dtype)

    tokens = column(data.draw(st.integers(0, 30)), data.draw(st.sampled_from(DTYPES)))
    places = [np.empty((rows, row_length), np.int32) for _ in range(6)]

    index = column(pieces, np.int32), column(pieces), column(pieces, np.int32)
    which = column(documents + 1), column(rows), column(rows)
    tried(compiled.kernels.fill, (tokens, False, *which, *index, row_length, 7, True, *places))


@given(st.data(), st.integers(0, 12), st.integers(0, 4), st.sampled_from([0, 4, 8]))
def test_a_column_of_arrow_that_holds_anything_is_copied_or_refused(data, kind, target, width):
    """Buffers of known lengths; chunks, offsets and rows of any values: what a damaged file would give."""

    def column(count, dtype=np.int64):
        return np.array([data.draw(values) for _ in range(count)], dtype=np.int64).astype(dtype)

    chunks, length = data.draw(st.integers(1, 3)), data.draw(small)
    sizes = [data.draw(small) for _ in range(chunks)]
    firsts = np.cumsum([0, *sizes])
    held = [column(8, np.int64) for _ in range(chunks)]
    offsets = [column(size + 1, np.int32 if width == 4 else np.int64) for size in sizes]
    places = np.array([[_address(h), 8, 0, _address(o)] for h, o in zip(held, offsets, strict=True)])
    rows = column(data.draw(small))
    out = np.empty(len(rows) * length, [np.bool_, np.int64, np.float32, np.float64, np.int16][target])

    tried(compiled.kernels.arrow_rows, (firsts, places, kind, target, width, length, rows, out))
    tried(compiled.kernels.arrow_rows, (column(chunks + 1), places, kind, target, 0, length, rows, out))


def _address(array):
    return array.__array_interface__["data"][0]


PLANTED = """
import numpy as np
from lading.runtime import compiled
like = np.zeros((4, 8), np.int32)
own = np.array([like.__array_interface__["data"][0]]), np.array([4]), np.array([4096])  # bytes of a row, it is said
target = np.zeros(8, np.int32)
compiled.kernels.gather(*own, np.zeros(1, np.int64), np.array([3]), np.array([target.__array_interface__["data"][0]]))
"""


@pytest.mark.skipif(os.environ.get("LADING_COMPILED") != "sanitized", reason="make test-sanitized")
def test_the_sanitizer_finds_a_row_that_is_too_long():
    """A planted fault, so that silence means something."""
    done = subprocess.run([sys.executable, "-c", PLANTED], capture_output=True, text=True)

    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
