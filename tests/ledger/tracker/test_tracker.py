"""Rules of CONTRACT.md, section 1, for the tracker in memory."""

from __future__ import annotations

import json
import warnings
from collections import UserDict, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from lading.errors import SourceError
from lading.identity import Bill
from lading.ledger.tracker import log
from lading.ledger.tracker.log import grouped
from lading.ledger.tracker.tracker import BatchTracker
from lading.runtime import compiled

batches = st.lists(
    st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 2**40)), max_size=40).map(tuple), min_size=1, max_size=12
)


def as_batch(pairs):
    """Return pairs of (dataset, index) as a dict batch."""
    return {"idx": [i for _, i in pairs], "dataset_idx": [d for d, _ in pairs]}


def plain_loop(all_pairs):
    """Group pairs as the plainest program would."""
    mapping = defaultdict(list)
    for dataset, index in all_pairs:
        mapping[dataset].append(index)
    return {dataset: mapping[dataset] for dataset in sorted(mapping)}


def bill_of(datasets, indices, is_padding):
    """Return a bill with these rows."""
    n = len(indices)
    return Bill(
        "e0-s0-x",
        0,
        0,
        None,
        0,
        np.arange(n),
        np.array(datasets, np.int32),
        np.array(indices),
        np.array(is_padding, bool),
        n,
    )


def test_document_example_gives_the_document_answer():
    """The document's usage example holds word for word."""
    tracker = BatchTracker()

    tracker.update({"idx": torch.tensor([0, 1, 2]), "dataset_idx": torch.tensor([1, 1, 2])})

    assert tracker.samples_idx_per_dataset == {1: [0, 1], 2: [2]}
    assert tracker.n_samples_per_dataset == {1: 2, 2: 1}


@pytest.mark.parametrize(
    "column",
    [torch.tensor, np.array, list, lambda v: torch.tensor(v, dtype=torch.int32), lambda v: np.array(v, np.uint8)],
)
def test_reads_tensors_arrays_and_lists_alike(column):
    """Any framework's column of integers will do."""
    tracker = BatchTracker()

    tracker.update({"idx": column([5, 3]), "dataset_idx": column([0, 7]), "text": ["a", "b"]})

    assert tracker.samples_idx_per_dataset == {0: [5], 7: [3]}


def test_reads_tensors_that_require_a_conversion():
    """Scalars, matrices, other mappings and views are read as well."""
    tracker = BatchTracker()

    tracker.update({"idx": torch.tensor(9), "dataset_idx": torch.tensor(1)})
    tracker.update(UserDict({"idx": torch.tensor([[1], [2]]), "dataset_idx": torch.tensor([[1], [1]])}))
    tracker.update({"idx": torch.arange(6)[::2], "dataset_idx": torch.zeros(3, dtype=torch.int64)})

    assert tracker.samples_idx_per_dataset == {0: [0, 2, 4], 1: [9, 1, 2]}


def test_keys_and_values_are_plain_python_in_ascending_order():
    """What comes out can go into JSON, and reads in order."""
    tracker = BatchTracker()

    tracker.update({"idx": torch.tensor([1, 2, 3]), "dataset_idx": torch.tensor([9, 0, 4])})

    for mapping in (tracker.samples_idx_per_dataset, tracker.n_samples_per_dataset):
        assert list(mapping) == [0, 4, 9]
        assert all(type(key) is int for key in mapping)
    assert all(type(v) is list and type(v[0]) is int for v in tracker.samples_idx_per_dataset.values())
    assert all(type(v) is int for v in tracker.n_samples_per_dataset.values())


@given(batches)
def test_equals_the_plain_python_loop(all_batches):
    """Pairs are kept in arrival order, duplicates kept, whatever the datasets and indices."""
    tracker = BatchTracker()

    for pairs in all_batches:
        tracker.update(as_batch(pairs))

    expected = plain_loop(pair for pairs in all_batches for pair in pairs)
    assert tracker.samples_idx_per_dataset == expected
    assert tracker.n_samples_per_dataset == {d: len(v) for d, v in expected.items()}


@given(batches)
def test_reading_between_updates_changes_nothing(all_batches):
    """Counting and listing while a block is open gives the same end."""
    watched, unwatched = BatchTracker(), BatchTracker()

    for pairs in all_batches:
        watched.update(as_batch(pairs))
        unwatched.update(as_batch(pairs))
        assert sum(watched.n_samples_per_dataset.values()) == sum(map(len, watched.samples_idx_per_dataset.values()))

    assert watched.samples_idx_per_dataset == unwatched.samples_idx_per_dataset
    assert watched.n_samples_per_dataset == unwatched.n_samples_per_dataset


def test_blocks_and_batches_larger_than_a_block_lose_nothing():
    """Names survive the closing of blocks, in batches of any size."""
    rng = np.random.default_rng(0)
    sizes = [10, log.BLOCK_SAMPLES - 3, 1, 5, 3 * log.BLOCK_SAMPLES + 7, 2]
    pairs = [(rng.integers(0, 3, n), rng.integers(0, 10**9, n)) for n in sizes]
    tracker = BatchTracker()

    for datasets, indices in pairs:
        tracker.update({"idx": indices, "dataset_idx": datasets})

    datasets, indices = (np.concatenate(column) for column in zip(*pairs, strict=True))
    assert tracker.samples_idx_per_dataset == {d: indices[datasets == d].tolist() for d in range(3)}
    assert len(tracker) == sum(sizes)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 70000, 2**40, -5]), st.integers(-5, 2**50)), max_size=50))
def test_compiled_and_plain_grouping_agree(pairs):
    """The kernel and its NumPy twin give the same groups, to the last element."""
    datasets, indices = (np.array([p[i] for p in pairs], np.int64) for i in range(2))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "enabled", lambda: False)
        plain = grouped(datasets, indices)
    ours = grouped(datasets, indices)

    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(plain, ours, strict=True))


def test_what_is_returned_is_the_callers():
    """Changing an answer does not change the tracker."""
    tracker = BatchTracker()
    tracker.update(as_batch([(0, 1)]))

    tracker.samples_idx_per_dataset[0].append(99)
    tracker.n_samples_per_dataset[0] = 99
    tracker.arrays_per_dataset()[0][:] = 99

    assert tracker.samples_idx_per_dataset == {0: [1]}
    assert tracker.n_samples_per_dataset == {0: 1}


def test_a_batch_changed_after_update_does_not_change_the_record():
    """Names are copied, because loaders use their buffers again."""
    tracker, idx = BatchTracker(), torch.tensor([1, 2])
    tracker.update({"idx": idx, "dataset_idx": torch.tensor([0, 0])})

    idx.fill_(7)

    assert tracker.samples_idx_per_dataset == {0: [1, 2]}


def test_refused_batch_leaves_no_trace():
    """Different lengths are a ValueError that names both, and nothing is recorded."""
    tracker = BatchTracker()

    with pytest.raises(ValueError, match="3 idx but 2 dataset_idx"):
        tracker.update({"idx": [1, 2, 3], "dataset_idx": [0, 0]})
    with pytest.raises(SourceError, match="2 idx but 1 is_padding"):
        tracker.update({"idx": [1, 2], "dataset_idx": [0, 0], "is_padding": [True]})

    assert tracker.samples_idx_per_dataset == {}
    assert tracker.n_samples_per_dataset == {}


def test_ids_that_are_no_numbers_are_refused():
    """Strings and floats are no indices, and the error says where they belong."""
    with pytest.raises(SourceError, match=r"'idx' holds .*expected integers.*'id'"):
        BatchTracker().update({"idx": ["a", "b"], "dataset_idx": [0, 0]})
    with pytest.raises(SourceError, match="'dataset_idx' holds float64"):
        BatchTracker().update({"idx": [1], "dataset_idx": [0.5]})


def test_empty_batch_is_a_batch():
    """No samples, no complaint."""
    tracker = BatchTracker()

    tracker.update({"idx": [], "dataset_idx": torch.tensor([])})

    assert tracker.n_samples_per_dataset == {}
    assert tracker.n_untracked_batches == 0


def test_batches_without_names_are_said_once_and_counted():
    """One warning per tracker says which keys there were and how to add names."""
    tracker = BatchTracker()

    with pytest.warns(UserWarning, match=r"it has input_ids, idx\. Wrap the dataset in lading\.TaggedDataset"):
        tracker.update({"input_ids": [1], "idx": [0]})
    # Warnings are errors in these tests: a second one would fail here.
    tracker.update([torch.zeros(2), torch.zeros(2)])
    assert tracker.n_untracked_batches == 2
    tracker.reset()
    tracker.update({"dataset_idx": [0]})

    assert tracker.n_untracked_batches == 1
    assert tracker.samples_idx_per_dataset == {}


def test_warning_names_the_type_of_a_batch_that_is_no_dict():
    """A tuple batch has no keys to list."""
    with pytest.warns(UserWarning, match="it is a tuple, not a dict"):
        BatchTracker().update((1, 2))


def test_internal_mapping_is_empty_when_new_and_after_reset():
    """``tracker`` and ``_tracker`` show the mapping."""
    tracker = BatchTracker()
    assert tracker.tracker == tracker._tracker == {}

    tracker.update(as_batch([(1, 0)]))
    assert tracker.tracker == tracker._tracker == {1: [0]}

    tracker.reset()
    assert tracker.tracker == tracker._tracker == {}
    tracker.update(as_batch([(2, 5)]))
    assert tracker.samples_idx_per_dataset == {2: [5]}


def test_padding_rows_do_not_count():
    """Rows marked as padding are in no tracker, from a dict or from a bill."""
    tracker = BatchTracker()

    tracker.update({"idx": [1, 1], "dataset_idx": [0, 0], "is_padding": torch.tensor([False, True])})
    tracker.update(bill_of([0, 2, 2], [4, 5, 5], [False, False, True]))

    assert tracker.samples_idx_per_dataset == {0: [1, 4], 2: [5]}


def test_llm_batch_gives_its_documents():
    """Documents are the samples of dataset 0; 0 is padding; a number per token counts each piece once."""
    tracker = BatchTracker()
    rows = SimpleNamespace(document_idx=torch.tensor([3, 0, 5]), sequence_idx=torch.tensor([0, 0, 1]))
    tokens = SimpleNamespace(
        document_idx=np.array([[1, 1, 2, 2, 0], [2, 2, 4, 4, 4]]),
        sequence_idx=np.array([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0]]),
    )

    tracker.update(rows)
    assert tracker.samples_idx_per_dataset == {0: [3, 5]}

    tracker.update(tokens)
    assert tracker.samples_idx_per_dataset == {0: [3, 5, 1, 2, 2, 4]}


def test_real_llm_batch_can_be_tracked():
    """The batch class of document 004 is read as it is."""
    batch_room = pytest.importorskip("lading.batch.llm")
    batch = batch_room.LLMIndexedBatch.from_inputs(
        np.ones((3, 4), np.int32), document_idx=np.array([7, 8, 0]), sequence_idx=np.array([0, 1, 0])
    )
    tracker = BatchTracker()

    tracker.update(batch)

    assert tracker.samples_idx_per_dataset == {0: [7, 8]}


def test_dump_appends_one_json_line(tmp_path):
    """Counts per dataset and the fields given, one object a line, valid JSON even for a loss that is not finite."""
    path, tracker = tmp_path / "counts.jsonl", BatchTracker()
    tracker.update(as_batch([(0, 1), (3, 2), (3, 1)]))

    tracker.dump(path, step=np.int64(4), loss=torch.tensor(0.5))
    tracker.dump(path, step=5, loss=float("nan"), shares=(1, 2))

    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == {"step": 4, "loss": 0.5, "n_samples_per_dataset": {"0": 1, "3": 2}}
    assert second == {"step": 5, "loss": None, "shares": [1, 2], "n_samples_per_dataset": {"0": 1, "3": 2}}


def test_a_million_samples_take_under_five_bytes_each():
    """Compact arrays inside: a tenth of what lists of ints take."""
    tracker, n = BatchTracker(), 1 << 20
    rng = np.random.default_rng(0)

    for _ in range(n // 4096):
        tracker.update({"idx": rng.integers(0, 2**32, 4096), "dataset_idx": rng.integers(0, 5, 4096)})

    # The open block is 1 MB whatever comes; the names themselves are what grows.
    assert (tracker.num_bytes - 16 * log.BLOCK_SAMPLES) / n < 5


def test_flush_is_part_of_the_protocol_and_an_empty_tracker_is_true():
    """Loaders flush what they feed, and ask ``if tracker``."""
    tracker = BatchTracker()

    tracker.flush()

    assert tracker
    assert len(tracker) == 0
    assert repr(tracker) == "BatchTracker(n_samples_per_dataset={})"


def test_named_batches_warn_of_nothing():
    """The test of the warning can fail: with names there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BatchTracker().update(as_batch([(0, 0)]))
