"""Packing indices: law 10 on the index, kernel and reference alike, lookups, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import PackingError
from lading.order.packing import plain as packing_plain
from lading.order.packing.index import PackingIndex, _sorted_in_windows, build_index, compiled_columns, lengths_hash
from lading.order.packing.rules import ALGORITHMS, OVERFLOWS, PackingRules, num_rows_bound
from lading.runtime import compiled as kernels


@st.composite
def rules(draw):
    """Any rules: every algorithm, every overflow policy, bounded and not, sorted and not."""
    algorithm = draw(st.sampled_from(ALGORITHMS))
    bounded = algorithm != "concat_then_split"
    return PackingRules(
        row_length=draw(st.sampled_from([1, 2, 5, 8, 64, 65, 130])),
        algorithm=algorithm,
        overflow=draw(st.sampled_from(OVERFLOWS)),
        open_rows=draw(st.sampled_from([None, 1, 2, 7])) if bounded else None,
        append_eod=draw(st.booleans()),
        sort_window=draw(st.sampled_from([0, 1, 5, 100])) if bounded else 0,
    )


@st.composite
def cases(draw):
    """Rules and lengths: empty documents, exactly one row, several rows, one token less or more."""
    chosen = draw(rules())
    row = chosen.row_length
    special = [0, 1, row - 1, row] + ([] if chosen.overflow == "error" else [row + 1, 2 * row, 2 * row + 1])
    longest = row if chosen.overflow == "error" else 3 * row
    lengths = draw(st.lists(st.sampled_from(special) | st.integers(0, longest), max_size=40))
    return np.array(lengths, np.int64), chosen


@given(cases())
def test_law_10_every_token_once_and_no_row_too_long(case):
    """The pieces of a document are exactly its tokens, in order; rows hold at most row_length."""
    lengths, chosen = case
    index = build_index(lengths, chosen)

    assert index.row_offsets[0] == 0 and index.row_offsets[-1] == index.num_pieces
    for row in range(len(index)):
        pieces = index.pieces(row)
        assert pieces and sum(piece.size for piece in pieces) <= chosen.row_length
    for document, length in enumerate(lengths.tolist()):
        kept = min(length, chosen.row_length) if chosen.overflow == "truncate" else length
        reached = 0
        for piece in index.rows_of_document(document):
            assert piece.start == reached
            reached += min(piece.size, length - piece.start)
            ends = piece.start + piece.size > length
            assert not ends or chosen.append_eod
            assert piece in index.pieces(piece.row)
        assert reached == kept
    assert len(index) <= num_rows_bound(lengths, chosen)


@pytest.mark.skipif(not kernels.enabled(), reason="nothing is compiled here")
@given(cases())
def test_the_kernel_equals_the_reference_to_the_last_bit(case):
    """Same columns, same dtypes."""
    lengths, chosen = case
    lengths = lengths.astype(np.int32)
    order = _sorted_in_windows(lengths, chosen)

    compiled = compiled_columns(lengths, order, chosen)
    plain = packing_plain.index_columns(lengths, order, chosen)

    for mine, theirs in zip(compiled, plain, strict=True):
        assert mine.dtype == theirs.dtype and mine.tolist() == theirs.tolist()


@given(st.lists(st.integers(1, 20), max_size=40), st.sampled_from([None, 1, 3]))
def test_first_fit_is_the_first_open_row_with_room(lengths, open_rows):
    """Against the definition, written down as slowly as possible."""
    index = PackingIndex.build(lengths, 20, open_rows=open_rows, append_eod=False)
    used: list[int] = []
    is_open: list[bool] = []
    for document, length in enumerate(lengths):
        fits = [row for row in range(len(used)) if is_open[row] and used[row] + length <= 20]
        if not fits:
            if length < 20 and open_rows is not None and sum(is_open) == open_rows:
                is_open[is_open.index(True)] = False
            fits = [len(used)]
            used.append(0)
            is_open.append(True)
        used[fits[0]] += length
        is_open[fits[0]] = used[fits[0]] < 20
        assert index.rows_of_document(document)[0].row == fits[0]


@given(st.lists(st.integers(1, 20), max_size=40))
def test_best_fit_is_the_row_with_the_least_room_that_suffices(lengths):
    """Against the definition; of equal rows the one changed last."""
    index = PackingIndex.build(lengths, 20, algorithm="best_fit", append_eod=False)
    used: list[int] = []
    changed: list[int] = []
    for document, length in enumerate(lengths):
        fits = [row for row in range(len(used)) if used[row] + length <= 20]
        row = min(fits, key=lambda row: (20 - used[row], -changed[row])) if fits else len(used)
        if not fits:
            used.append(0)
            changed.append(0)
        used[row] += length
        changed[row] = document
        assert index.rows_of_document(document)[0].row == row


def test_sorted_windows_pack_better():
    """Fewer rows for the same documents."""
    lengths = np.maximum(1, np.random.default_rng(0).lognormal(5.9, 1, 20_000)).astype(int)

    plain = PackingIndex.build(lengths, 2048, algorithm="best_fit", overflow="split")
    windows = PackingIndex.build(lengths, 2048, algorithm="best_fit", overflow="split", sort_window=4096)

    assert plain.density >= 0.99 and windows.density >= 0.9995


def test_an_index_is_named_by_lengths_and_rules():
    """Equal content, equal fingerprint, whatever integers hold the lengths; anything else, another."""
    index = PackingIndex.build([3, 2, 2], 8)

    assert index.fingerprint == PackingIndex.build(np.array([3, 2, 2], np.uint16), 8).fingerprint
    assert index.fingerprint != PackingIndex.build([3, 2, 1], 8).fingerprint
    assert index.fingerprint != PackingIndex.build([3, 2, 2], 9).fingerprint
    assert index.fingerprint != PackingIndex.build([3, 2, 2], 8, algorithm="best_fit").fingerprint
    assert lengths_hash(np.zeros(0, np.int64)) == lengths_hash(np.zeros(0, np.int32))


def test_golden_rows():
    """Frozen: a change here changes the rows of every corpus ever packed."""
    lengths = [5, 9, 3, 0, 16, 7, 2, 21, 1, 4, 8, 6]
    rows = {
        name: [[(p.document, p.start, p.size) for p in index.pieces(r)] for r in range(len(index))]
        for name, index in {
            "first": PackingIndex.build(lengths, 16, overflow="split"),
            "best": PackingIndex.build(lengths, 16, overflow="split", algorithm="best_fit"),
            "concat": PackingIndex.build(lengths, 16, overflow="split", algorithm="concat_then_split"),
        }.items()
    }

    assert rows["first"] == [
        [(0, 0, 6), (1, 0, 10)],
        [(2, 0, 4), (5, 0, 8), (6, 0, 3)],
        [(4, 0, 16)],
        [(7, 0, 16)],
        [(7, 16, 6), (8, 0, 2), (9, 0, 5)],
        [(10, 0, 9), (11, 0, 7)],
    ]
    assert rows["best"] == rows["first"]
    assert rows["concat"] == [
        [(0, 0, 6), (1, 0, 10)],
        [(2, 0, 4), (4, 0, 12)],
        [(4, 12, 4), (5, 0, 8), (6, 0, 3), (7, 0, 1)],
        [(7, 1, 16)],
        [(7, 17, 5), (8, 0, 2), (9, 0, 5), (10, 0, 4)],
        [(10, 4, 5), (11, 0, 7)],
    ]


@pytest.mark.parametrize(
    ("lengths", "chosen", "message"),
    [
        ([1, -2], {}, "document 1 has -2 tokens: lengths cannot be negative"),
        ([1, 9], {}, "document 1 has 9 tokens but a row holds 8"),
        ([0.5], {}, "lengths are float64 with 1 axes: expected one integer"),
        ([[1]], {}, "with 2 axes"),
        ([1], {"algorithm": "worst_fit"}, "algorithm='worst_fit' is unknown: expected one of 'first_fit', 'best_fit'"),
        ([1], {"overflow": "wrap"}, "overflow='wrap' is unknown"),
        ([1], {"row_length": 0}, "row_length=0: expected an integer from 1"),
        ([1], {"open_rows": 0}, "open_rows=0: expected an integer from 1"),
        ([1], {"algorithm": "concat_then_split", "open_rows": 2}, "open_rows and sort_window mean nothing to it"),
    ],
)
def test_wrong_rules_and_lengths_are_refused(lengths, chosen, message):
    """Each message says what was found and expected."""
    with pytest.raises(PackingError, match=message):
        PackingIndex.build(lengths, **{"row_length": 8, **chosen})


def test_rows_and_documents_that_do_not_exist():
    """Lookups say how many there are."""
    index = PackingIndex.build([3, 0], 8)

    assert index.rows_of_document(1) == []
    with pytest.raises(PackingError, match="document 2 does not exist: the index was made from 2 documents"):
        index.rows_of_document(2)
    with pytest.raises(PackingError, match="row 1 does not exist: there are 1 rows"):
        index.pieces(1)


def test_a_full_row_is_open_no_more():
    """It takes no place among the rows that may be open at once; plain and compiled alike."""
    rules = PackingRules(row_length=20, open_rows=1, append_eod=False)

    for columns_of in (packing_plain.index_columns, *([compiled_columns] if kernels.enabled() else [])):
        offsets, documents = columns_of(np.array([10, 10, 15, 5, 8, 12]), None, rules)[:2]
        assert offsets.tolist() == [0, 2, 4, 6] and documents.tolist() == [0, 1, 2, 3, 4, 5]
