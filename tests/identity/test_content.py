"""A hash of each sample's bytes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays
from torch.utils.data import default_collate

from lading.errors import SourceError
from lading.identity import World, total_digest
from lading.identity.content import (
    CONTENT_VERSION,
    content_hash,
    content_hashes,
    digest_of_content,
    joined_hash,
    sample_hashes,
)
from lading.loader.torch.loader import Loader
from lading.runtime import compiled


@given(st.integers(0, 4), st.integers(0, 6), st.integers(0, 7))
def test_one_changed_byte_changes_one_hash(row: int, column: int, bit: int):
    """The changed sample's hash changes, no other does."""
    x = np.arange(35, dtype=np.uint8).reshape(5, 7)
    before = content_hashes({"x": x, "y": np.zeros(5)}, 5)
    x[row, column] ^= 1 << bit

    after = content_hashes({"x": x, "y": np.zeros(5)}, 5)

    assert (before != after).tolist() == [r == row for r in range(5)]


def test_a_row_hashes_the_same_wherever_it_stands_in_a_batch():
    """Content says what a sample is, not where."""
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)

    assert np.array_equal(content_hashes(x, 4)[[2, 0]], content_hashes(x[[2, 0]], 2))


def test_torch_and_numpy_batches_hash_alike_and_names_do_not_count():
    """The same bytes give the same hash; idx and dataset_idx say who, not what."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    named = {"x": torch.from_numpy(x), "idx": torch.arange(3), "dataset_idx": torch.zeros(3), "is_padding": [0, 0, 0]}

    assert np.array_equal(content_hashes({"x": x}, 3), content_hashes(named, 3))


def test_columns_are_told_apart():
    """The same bytes under another name, or with columns exchanged, are other content."""
    a, b = np.arange(3), np.arange(3) + 1

    assert not np.array_equal(content_hashes({"x": a, "y": b}, 3), content_hashes({"x": b, "y": a}, 3))
    assert not np.array_equal(content_hashes((a, b), 3), content_hashes((b, a), 3))
    assert not np.array_equal(content_hashes(a, 3), content_hashes(a.astype(np.int32), 3))


def test_text_is_hashed_too():
    """Lists of strings, as collate leaves them."""
    before, after = (content_hashes({"text": texts}, 2) for texts in (["a", "b"], ["a", "c"]))

    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_column_of_another_length_is_refused():
    """No one could say whose bytes they are."""
    with pytest.raises(SourceError, match="column 'x' of the batch has 2 rows, its bill has 3"):
        content_hashes({"x": np.zeros(2)}, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [(["a\0sb", ""], ["a", "b\0s"]), ({"a": "x\0ky"}, {"a": "x", "y": ""}), (["a", ["b"]], ["a", "b"]), ([[]], [])],
)
def test_no_two_structures_run_into_one(one, other):
    """The first version's fingerprint of a source wrote no lengths: two different corpora had one fingerprint."""
    assert joined_hash([sample_hashes(one)]) != joined_hash([sample_hashes(other)])
    assert content_hash(one) != content_hash(other)


def test_a_source_with_other_strings_has_another_fingerprint():
    """The pair that collided in the first version, through a loader's plan."""
    one, other = (Loader(list(texts), 1, fingerprint="full", world=World()) for texts in (["a\0sb", ""], ["a", "b\0s"]))

    assert one.plan.datasets[0].fingerprint != other.plan.datasets[0].fingerprint


leaves = st.one_of(
    st.just((0, 1, 2)),
    st.just(("a", "", "b\0")),
    st.just((1.5, -0.0, 3.0)),
    st.just((True, False, True)),
    st.sampled_from(["f4", "i8", "u1"]).map(lambda kind: tuple(np.arange(6).reshape(3, 2).astype(kind))),
    st.just(tuple(torch.arange(12).reshape(3, 2, 2).to(torch.bfloat16))),
)
columns = st.recursive(
    leaves, lambda inner: st.one_of(st.dictionaries(st.sampled_from("xyz"), inner, min_size=1), st.tuples(inner, inner))
)  # fmt: skip


def sample_of(column, row):
    """Return one sample of a tree of columns with three rows each."""
    if isinstance(column, dict):
        return {name: sample_of(value, row) for name, value in column.items()}
    return tuple(sample_of(v, row) for v in column) if len(column) == 2 else column[row]


@given(columns)
def test_a_row_of_a_batch_hashes_like_its_sample(column):
    """What a ledger records of a delivered row is the hash of the sample, for every structure that collate knows."""
    samples = [{"part": sample_of(column, row)} for row in range(3)]

    found = content_hashes(default_collate(samples), 3)

    assert [f"{h:016x}" for h in found.tolist()] == [content_hash(sample) for sample in samples]


def test_types_that_numpy_lacks_are_hashed_by_their_values():
    """bfloat16 and float8 of torch, in samples and in batches."""
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        tensor = torch.ones(2, 3).to(dtype)

        assert content_hash(tensor) == content_hash(np.ones((2, 3), np.float32))
        assert (
            content_hashes({"x": tensor}, 2).tolist() == content_hashes({"x": np.ones((2, 3), np.float32)}, 2).tolist()
        )


def test_content_is_frozen():
    """A changed definition is a changed version."""
    sample = {"x": np.arange(3, dtype=np.float32), "text": "ünï", "more": [1, 2.5, None, b"bytes", True]}

    assert (CONTENT_VERSION, content_hash(sample)) == (2, "df5895778f0768db")


def test_strings_in_numpy_arrays_do_not_depend_on_their_neighbours():
    """NumPy widens every string of an array to the longest."""
    assert content_hashes({"t": np.array(["a", "long"])}, 2)[0] == content_hashes({"t": np.array(["a", "b"])}, 2)[0]


def test_content_without_bytes_is_refused_in_a_batch():
    """The first version hashed its repr, which may hold an address."""
    with pytest.raises(SourceError, match="holds a object, which has no content hash"):
        content_hashes({"x": [object(), object()]}, 2)


columns = arrays.arrays(
    st.sampled_from(["?", "i1", "u2", "<i4", ">i4", "f2", "f4", "f8", "c16", "<M8[s]"]),
    arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=9).map(lambda shape: (5, *shape[1:])),
)


@pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")
@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), columns, max_size=3), st.lists(columns, max_size=2))
def test_compiled_and_plain_hashes_are_equal(named, listed):
    """Columns of any type and shape, wide ones too, side by side under names and in lists."""
    wide = np.arange(5 * 5001, dtype=np.uint8).reshape(5, 5001)
    batch = {**named, "listed": listed or wide, "wide": wide}

    found = content_hashes(batch, 5)

    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(compiled, "kernels", None)
        assert np.array_equal(content_hashes(batch, 5), found)


@given(st.lists(st.booleans(), max_size=9), st.integers(0, 1 << 40), st.sampled_from([np.int32, np.int64]))
def test_content_digests_are_the_same_compiled_and_plain(padding, position, dtype):
    """Rows that are left out do not count, and a row counts at its place."""
    slots, hashes = np.arange(len(padding), dtype=dtype), np.arange(len(padding), dtype=np.uint64) * np.uint64(1 << 61)
    arguments = position, slots, hashes, np.array(padding, bool)

    found = digest_of_content(*arguments)

    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(compiled, "kernels", None)
        assert digest_of_content(*arguments) == found
    each = [digest_of_content(position, *(column[i : i + 1] for column in arguments[1:])) for i in range(len(padding))]
    assert found == total_digest(each)
