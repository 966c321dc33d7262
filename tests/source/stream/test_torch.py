"""Method 3 of document 001: a stream whose samples and batches carry ids."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader

from lading.errors import SourceError
from lading.ledger.tracker.tracker import BatchTracker
from lading.source.stream.sharding import ReaderSlot, share_shard, share_whole
from lading.source.stream.torch import TaggedIterableDataset

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


def pairs(size=23):
    """Return a factory of (id, sample) pairs."""

    def generate():
        for i in range(size):
            yield i, torch.full((3,), float(i))

    return generate


class Sharded:
    """A source that can give every n-th sample, and counts what was read."""

    def __init__(self, size):
        self.size = size
        self.read = 0

    def __len__(self):
        return self.size

    def __iter__(self):
        return self.shard(0, 1)

    def shard(self, i, n):
        for position in range(i, self.size, n):
            self.read += 1
            yield position


def read(dataset, num_workers=0):
    """Return (ids, batch id) of each batch as a DataLoader gives them."""
    return [(ids, batch_id) for _, ids, batch_id in DataLoader(dataset, batch_size=None, num_workers=num_workers)]


def test_document_code_runs():
    """The document's example, with the three replacements the contract names."""

    def data_generator():
        for i in range(100):
            yield i, torch.randn(10)

    batch_size = 10
    dataset = TaggedIterableDataset(data_generator, batch_size, items="pairs")
    dataloader = DataLoader(dataset, batch_size=None)

    for i, batch in enumerate(dataloader):
        batch_data, sample_ids, batch_id = batch
        assert batch_data.shape == (10, 10)
        assert sample_ids == list(range(i * 10, i * 10 + 10))
        assert batch_id == i
    assert i == 9


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_batches_do_not_depend_on_workers_in_three_epochs(num_workers):
    """Batch b holds samples bB to bB+B-1, a short end included, with ids from 0 in each epoch."""
    dataset = TaggedIterableDataset(pairs(23), 5, items="pairs")
    expected = [(list(range(b * 5, min(b * 5 + 5, 23))), b) for b in range(5)]

    loader = DataLoader(dataset, batch_size=None, num_workers=num_workers)

    for _ in range(3):
        seen = []
        for data, ids, batch_id in loader:
            assert data[:, 0].tolist() == ids
            seen.append((ids, batch_id))
        assert seen == expected


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ids_follow_a_stream_that_shuffles(num_workers):
    """Ids are the source's, places are the stream's, in whatever order the samples come."""
    order = np.random.default_rng(5).permutation(23).tolist()
    dataset = TaggedIterableDataset(lambda: ((f"doc-{i}", torch.tensor(i)) for i in order), 4, "pairs")

    for _ in range(3):
        seen = [(ids, data.tolist()) for data, ids, _ in DataLoader(dataset, batch_size=None, num_workers=num_workers)]
        assert [i for _, data in seen for i in data] == order
        assert all(ids == [f"doc-{i}" for i in data] for ids, data in seen)


@pytest.mark.parametrize("num_workers", [0, 2, 3])
@pytest.mark.parametrize("first", [0, 1, 3, 4, 9])
def test_resume_continues_the_epoch(num_workers, first):
    """From any batch on, with any number of workers, the rest of the epoch comes in order."""
    dataset = TaggedIterableDataset(pairs(23), 5, items="pairs")

    assert read(dataset.starting_at(first), num_workers) == read(dataset)[first:]
    assert dataset.first == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_ranks_share_the_batches_and_the_short_end_is_marked(num_workers):
    """Ranks have equal counts; rows that only fill up have id -1."""
    ranks = [TaggedIterableDataset(pairs(23), 5, "pairs", rank=r, world_size=2) for r in range(2)]

    first, second = (read(dataset, num_workers) for dataset in ranks)

    assert first == [([0, 1, 2, 3, 4], 0), ([10, 11, 12, 13, 14], 2), ([20, 21, 22], 4)]
    assert second == [([5, 6, 7, 8, 9], 1), ([15, 16, 17, 18, 19], 3), ([-1, -1, -1], 5)]


def test_drop_last_drops_a_short_end_on_all_ranks():
    """Without filling up, every rank gets the full rounds only."""
    ranks = [TaggedIterableDataset(pairs(23), 5, "pairs", rank=r, world_size=2, drop_last=True) for r in range(2)]

    assert [batch_id for dataset in ranks for _, batch_id in read(dataset)] == [0, 2, 1, 3]
    assert [b for _, b in read(TaggedIterableDataset(pairs(23), 5, "pairs", drop_last=True))] == [0, 1, 2, 3]


slots = st.tuples(st.integers(0, 40), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.booleans())


def share(size, batch_size, slot, drop_last, is_sharded):
    """Return a slot's batches of a stream of numbers."""
    if is_sharded:
        shard = range(slot.shard, size, slot.num_shards)
        return list(share_shard(shard, batch_size, slot, length=size, drop_last=drop_last))
    return list(share_whole(range(size), batch_size, slot, drop_last=drop_last))


@given(slots, st.booleans())
def test_every_sample_is_dealt_exactly_once(case, is_sharded):
    """Over all ranks and workers each sample comes once, in batches of unique number; only a short end is dropped."""
    size, batch_size, ranks, workers, drop_last = case
    if is_sharded and size < ranks * workers:
        return
    batches = [
        batch
        for r, w in itertools.product(range(ranks), range(workers))
        for batch in share(size, batch_size, ReaderSlot(r, ranks, w, workers), drop_last, is_sharded)
    ]

    real = [p for batch in batches for p in batch.positions[: len(batch.items) - batch.num_padding]]
    assert len({batch.number for batch in batches}) == len(batches)
    assert all(batch.positions == batch.items for batch in batches)
    assert len(set(real)) == len(real)
    if drop_last:
        assert all(batch.num_padding == 0 and len(batch.items) == batch_size for batch in batches)
        assert size - len(real) < batch_size * ranks * (workers if is_sharded else 1)
    else:
        assert sorted(real) == list(range(size))


@given(slots, st.booleans())
def test_ranks_get_equal_counts_in_every_round(case, is_sharded):
    """No one hangs: the same worker of each rank has as many batches, with as many rows."""
    size, batch_size, ranks, workers, drop_last = case
    if is_sharded and size < ranks * workers:
        return
    for w in range(workers):
        shapes = [
            [len(h.items) for h in share(size, batch_size, ReaderSlot(r, ranks, w, workers), drop_last, is_sharded)]
            for r in range(ranks)
        ]
        assert all(shape == shapes[0] for shape in shapes)


@given(slots, st.integers(0, 12))
def test_resume_deals_the_rest_and_worker_zero_comes_first(case, round_):
    """Starting later deals exactly what is left, and a loader that asks worker 0 first gets it in order."""
    size, batch_size, ranks, workers, drop_last = case
    for rank in range(ranks):
        whole = share(size, batch_size, ReaderSlot(rank, ranks), drop_last, False)
        shared = [
            share(size, batch_size, ReaderSlot(rank, ranks, w, workers, round_ * ranks), drop_last, False)
            for w in range(workers)
        ]
        in_turn = [batch for turn in itertools.zip_longest(*shared) for batch in turn if batch is not None]
        assert in_turn == whole[round_:]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_sharded_source_reads_only_its_share(num_workers):
    """A source with ``shard`` is not read by everybody; ids stay the places in the stream."""
    seen = []
    for rank in range(2):
        dataset = TaggedIterableDataset(Sharded(21), 4, rank=rank, world_size=2)
        for data, ids, _ in DataLoader(dataset, batch_size=None, num_workers=num_workers):
            real = [(i, x) for i, x in zip(ids, data.tolist(), strict=True) if i >= 0]
            assert all(i == x for i, x in real)
            seen += [i for i, _ in real]
        if num_workers == 0:
            assert dataset.source.read in (10, 11)

    assert sorted(seen) == list(range(21))


def test_sharded_source_without_length_cannot_serve_ranks():
    """Ranks could not agree on their number of batches, and the error says so."""

    class Endless:
        def __iter__(self):
            return iter(())

        def shard(self, i, n):
            return itertools.count(i, n)

    with pytest.raises(SourceError, match=r"shard.* but no length, so 2 ranks cannot agree"):
        list(TaggedIterableDataset(Endless(), 2, rank=0, world_size=2))
    alone = itertools.islice(TaggedIterableDataset(Endless(), 2, collate_fn=list), 2)
    assert list(alone) == [([0, 1], [0, 1], 0), ([2, 3], [2, 3], 1)]


def test_tiny_sharded_source_still_serves_every_rank():
    """With fewer samples than slots, padding comes from the whole stream."""
    ranks = [list(TaggedIterableDataset(Sharded(1), 2, rank=r, world_size=2)) for r in range(2)]

    assert [ids for _, ids, _ in ranks[0]] == [[0]]
    assert [ids for _, ids, _ in ranks[1]] == [[-1]]


def test_hugging_face_shard_is_not_mistaken_for_ours():
    """Their ``shard(num_shards, index)`` has its arguments the other way round."""

    class Theirs(list):
        def shard(self, num_shards, index):
            raise AssertionError("must not be called")

    assert read(TaggedIterableDataset(Theirs(range(3)), 2)) == [([0, 1], 0), ([2], 1)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_samples_without_batch_size_carry_names_to_the_tracker(num_workers):
    """Dict samples gain ``idx`` and ``dataset_idx``; the loader batches them as it likes."""
    dataset = TaggedIterableDataset([{"x": i * 10} for i in range(11)], dataset_idx=2)
    tracker = BatchTracker()

    for batch in DataLoader(dataset, batch_size=3, num_workers=num_workers):
        assert torch.equal(batch["x"], batch["idx"] * 10)
        tracker.update(batch)

    assert {d: sorted(i) for d, i in tracker.samples_idx_per_dataset.items()} == {2: list(range(11))}


def test_padded_samples_are_marked_and_not_tracked():
    """Of 5 samples on 2 ranks the sixth is padding."""
    tracker = BatchTracker()
    for rank in range(2):
        dataset = TaggedIterableDataset([{"x": i} for i in range(5)], rank=rank, world_size=2)
        samples = list(dataset)
        assert len(samples) == 3
        for batch in DataLoader(dataset, batch_size=2):
            tracker.update(batch)

    assert sorted(tracker.samples_idx_per_dataset[0]) == [0, 1, 2, 3, 4]
    assert samples[-1]["is_padding"] is True


def test_bare_samples_become_pairs_with_their_id():
    """Without a dict there is the document's pair; padding has no id."""
    assert list(TaggedIterableDataset("ab")) == [("a", 0), ("b", 1)]
    assert list(TaggedIterableDataset([("k1", "a"), ("k2", "b")], items="pairs")) == [("a", "k1"), ("b", "k2")]
    odd = [("k1", "a"), ("k2", "b"), ("k3", "c")]
    assert list(TaggedIterableDataset(odd, items="pairs", rank=1, world_size=2)) == [("b", "k2"), ("c", "")]
    assert list(TaggedIterableDataset([("k", {"x": 1})], items="pairs")) == [
        {"x": 1, "idx": 0, "dataset_idx": 0, "id": "k"}
    ]


def test_dict_batches_carry_columns():
    """Whole batches of dicts can go straight to a tracker."""
    dataset = TaggedIterableDataset([{"x": i} for i in range(3)], 2, dataset_idx=1, rank=1, world_size=2)

    ((data, ids, batch_id),) = list(dataset)

    assert ids == [2, -1]
    assert batch_id == 1
    assert data["idx"].tolist() == [2, 2]
    assert data["is_padding"].tolist() == [False, True]
    tracker = BatchTracker()
    tracker.update(data)
    assert tracker.samples_idx_per_dataset == {1: [2]}


def test_length_is_known_where_the_source_has_one():
    """``len`` counts this rank's batches; where no one can know, it says so."""
    for first, drop_last, ranks in itertools.product((0, 2), (False, True), (1, 2, 3)):
        dataset = TaggedIterableDataset(list(range(23)), 5, drop_last=drop_last, rank=0, world_size=ranks)
        dataset = dataset.starting_at(first * ranks)
        assert len(dataset) == len(list(dataset))
    with pytest.raises(TypeError, match="has no length before it is read"):
        len(TaggedIterableDataset(pairs(), 5))


def test_generator_is_refused_and_told_why():
    """A bare generator is empty in epoch 2."""
    with pytest.raises(SourceError, match="is a generator, which can be read only once: it would be empty in epoch 2"):
        TaggedIterableDataset(pairs()(), 5)
    with pytest.raises(SourceError, match="Pass the function that makes it"):
        TaggedIterableDataset(iter([1, 2]))


def test_misuse_is_named():
    """Each wrong argument says what was expected."""
    with pytest.raises(SourceError, match="batch_size is 0: expected an integer of at least 1"):
        TaggedIterableDataset([1], 0)
    with pytest.raises(SourceError, match="items is 'rows': expected 'samples', or 'pairs'"):
        TaggedIterableDataset([1], items="rows")
    with pytest.raises(SourceError, match="the source is a int: expected a re-iterable or a function"):
        TaggedIterableDataset(5)
    with pytest.raises(SourceError, match=r"gave a int at place 0: expected a pair \(id, sample\)"):
        list(TaggedIterableDataset([1, 2], items="pairs"))


def test_world_is_looked_up_at_first_use_and_travels_to_workers(monkeypatch):
    """Loaders are built before the ranks are known; spawned workers are notified whose they are."""
    dataset = TaggedIterableDataset(list(range(4)), 1)
    rest = dataset.starting_at(2)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    sent = copy.copy(dataset)  # copied by the protocol that sends it to a spawned worker
    monkeypatch.delenv("RANK")

    assert sent.world.rank == dataset.world.rank == 1
    assert [b for _, _, b in sent] == [1, 3]
    monkeypatch.setenv("RANK", "1")
    assert [b for _, _, b in rest] == [3]


def test_numpy_samples_are_collated():
    """Arrays stack as tensors do."""
    ((data, ids, _),) = list(TaggedIterableDataset([np.ones(2), np.zeros(2)], 2))

    assert data.shape == (2, 2)
    assert ids == [0, 1]
