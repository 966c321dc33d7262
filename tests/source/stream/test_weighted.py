"""A stream drawn by weight: the same draws for all, each with its own, and a state of a few integers."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader, IterableDataset

from lading.errors import ResumeError, SourceError
from lading.ledger import BatchTracker
from lading.observe import track
from lading.source import WeightedConcatIterableDataset


class Stream:
    """A re-iterable without index; ``sized`` says whether it has a length."""

    def __init__(self, dataset, size):
        self.dataset, self.size = dataset, size

    def __iter__(self):
        return ({"x": (self.dataset, i)} for i in range(self.size))


class SizedStream(Stream):
    """The same with a length."""

    def __len__(self):
        return self.size


class TorchStream(SizedStream, IterableDataset):
    """The same as a torch stream, which inherits a ``__getitem__`` that only raises."""


def rows(dataset, size):
    """Return dict samples that know who they are."""
    return [{"x": (dataset, i)} for i in range(size)]


def names(samples):
    """Return the names that samples carry; they must be who they are."""
    samples = list(samples)
    found = [(s["dataset_idx"], s["idx"]) for s in samples]
    assert found == [tuple(s["x"]) for s in samples]
    return found


def make(kind=rows, **arguments):
    """Return a stream over three datasets."""
    return WeightedConcatIterableDataset([kind(0, 4), kind(1, 3), kind(2, 5)], [1, 2, 0.5], **arguments)


@pytest.mark.parametrize("kind", [rows, SizedStream, TorchStream])
def test_an_epoch_is_as_long_as_the_concatenation_and_shares_follow_weight_times_length(kind):
    """Each dataset in its own order, over and over; the same draws for lists and streams."""
    stream = WeightedConcatIterableDataset([kind(0, 400), kind(1, 300), kind(2, 500)], [1, 2, 0.5])

    found = names(stream)

    assert len(found) == len(stream) == 400 + 600 + 250
    counts = np.bincount([d for d, _ in found])
    assert counts / counts.sum() == pytest.approx(np.array([400, 600, 250]) / 1250, abs=0.05)
    for dataset, size in enumerate((400, 300, 500)):
        mine = [i for d, i in found if d == dataset]
        assert mine == [k % size for k in range(len(mine))]
    assert found == names(WeightedConcatIterableDataset([rows(0, 400), rows(1, 300), rows(2, 500)], [1, 2, 0.5]))


def test_epochs_and_seeds_draw_differently():
    """And the same epoch always alike."""
    stream = make(seed=3)
    first = names(stream)
    stream.set_epoch(1)
    second = names(stream)
    stream.set_epoch(0)

    assert names(stream) == first != second
    assert names(make(seed=4)) != first


@pytest.mark.parametrize("kind", [rows, SizedStream])
@given(ranks=st.integers(1, 4))
def test_ranks_share_one_stream(kind, ranks):
    """No one repeats another's draws; ranks are equally long; together they are the stream of one rank."""
    streams = [make(kind, rank=r, world_size=ranks) for r in range(ranks)]
    parts = [names(s) for s in streams]

    together = [part[i] for i in range(len(parts[0])) for part in parts]

    assert {len(p) for p in parts} == {len(s) for s in streams} == {-(-13 // ranks)}
    assert together[:13] == names(make(kind))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_share_one_stream(workers):
    """A DataLoader takes it for an IterableDataset; no sample twice, none missing."""
    stream = make(SizedStream)
    assert isinstance(stream, IterableDataset)
    loader = DataLoader(stream, batch_size=None, num_workers=workers)

    found = [(s["dataset_idx"], s["idx"]) for s in loader]

    assert sorted(found) == sorted(names(make(SizedStream)))
    assert pickle.loads(pickle.dumps(stream)).lengths == stream.lengths


@pytest.mark.parametrize("kind", [rows, SizedStream, TorchStream, Stream])
@given(done=st.integers(0, 40))
def test_a_state_resumes_after_the_last_sample(kind, done):
    """On lists, streams, and streams that do not end; the state is JSON."""
    whole = make(kind, seed=2)
    whole.set_epoch(2)
    expected = list(itertools.islice(whole, 60))
    stream = make(kind, seed=2)
    stream.set_epoch(2)
    taken = list(itertools.islice(stream, done))

    state = json.loads(json.dumps(stream.state_dict()))
    again = make(kind, seed=2)
    again.load_state_dict(state)
    rest = list(itertools.islice(again, max(len(expected) - len(taken), 0)))

    assert taken + rest == expected
    assert list(itertools.islice(again, 5)) == expected[:5]  # the next iteration is a whole epoch


def test_a_state_belongs_to_its_rank():
    """Each rank resumes its own draws."""
    for rank in (0, 1):
        stream, again = make(rank=rank, world_size=2), make(rank=rank, world_size=2)
        taken = names(itertools.islice(stream, 3))
        again.load_state_dict(stream.state_dict())

        assert taken + names(again) == names(make(rank=rank, world_size=2))


def test_streams_without_lengths_do_not_end():
    """Weights alone are the shares then."""
    stream = make(Stream)

    found = names(itertools.islice(stream, 3000))

    counts = np.bincount([d for d, _ in found])
    assert counts / 3000 == pytest.approx(np.array([1, 2, 0.5]) / 3.5, abs=0.05)
    with pytest.raises(TypeError, match="does not end"):
        len(stream)


def test_trackers_and_track_book_what_the_samples_say(tmp_path):
    """The tracker of a DataLoader's batches and the bills of ``track`` agree."""
    tracker, seen = BatchTracker(), BatchTracker()

    for batch in track(DataLoader(make(), batch_size=4), tracker=tracker):
        seen.update(batch)

    assert tracker.samples_idx_per_dataset == seen.samples_idx_per_dataset
    assert len(tracker) == 13


def test_misuse_is_named():
    """Iterators, empty datasets, lengths of some only, states of others."""
    with pytest.raises(SourceError, match=r"dataset 1 is a list_iterator.*iterated again and again"):
        WeightedConcatIterableDataset([[1], iter([2])], [1, 1])
    with pytest.raises(SourceError, match="dataset 1 has no length and others have"):
        WeightedConcatIterableDataset([[1], Stream(0, 2)], [1, 1])
    with pytest.raises(SourceError, match="dataset 0 of a weighted stream gave no sample"):
        list(WeightedConcatIterableDataset([Stream(0, 0)], [1]))
    with pytest.raises(ValueError, match="2 datasets but 1 weights"):
        WeightedConcatIterableDataset([[1], [2]], [1])
    with pytest.raises(ResumeError, match="the state is of 1 datasets, this stream has 3"):
        make().load_state_dict({"epoch": 0, "draw": 0, "counts": [1]})
    with pytest.raises(ResumeError, match="no state of a weighted stream"):
        make().load_state_dict({"steps": 3})
