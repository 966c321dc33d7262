"""Rules of CONTRACT.md, section 1, for the loader that never ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

from lading.errors import LoaderError, SourceError
from lading.identity.content import content_hash
from lading.ledger import Ledger
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.torch.distributed_sampler import StatefulDistributedSampler
from lading.loader.torch.loader import Loader
from lading.report import open_run
from lading.source.tagged import TaggedDataset
from lading.train.repeating import RepeatingLoader


def tagged(size=6):
    """Return a dataset whose dict samples carry names."""
    return TaggedDataset([{"x": i} for i in range(size)], dataset_idx=1)


def take(loader, count):
    """Return the next batches."""
    return [next(loader) for _ in range(count)]


def test_never_ends_and_is_its_own_iterator():
    """Passes follow each other without a seam."""
    loader = RepeatingLoader(DataLoader(torch.arange(5), batch_size=2))

    assert iter(loader) is loader
    assert [b.tolist() for b in take(loader, 7)] == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4], [0, 1]]


def test_attributes_are_those_of_the_original():
    """``loader``, ``data_iter`` and ``batch_tracker``."""
    inner = DataLoader(torch.arange(2))

    loader = RepeatingLoader(inner)

    assert loader.loader is inner
    assert loader.data_iter is loader.data_iter
    assert next(loader.data_iter) == torch.tensor([0])
    assert loader.batch_tracker is None


def test_tracker_can_be_asked_for_or_given():
    """True makes one; an instance, even an empty one, is used as it is."""
    mine = BatchTracker()

    made, given = RepeatingLoader(DataLoader(tagged()), True), RepeatingLoader(DataLoader(tagged()), mine)
    take(made, 8)
    take(given, 8)

    assert given.batch_tracker is mine
    assert made.batch_tracker.samples_idx_per_dataset == mine.samples_idx_per_dataset == {1: [0, 1, 2, 3, 4, 5, 0, 1]}
    assert RepeatingLoader([1], use_batch_tracker=False).batch_tracker is None


def test_tracker_is_never_reset_by_the_loader():
    """Passes add up until the user resets."""
    loader = RepeatingLoader(DataLoader(tagged(3), batch_size=3), True)

    take(loader, 4)
    assert loader.batch_tracker.n_samples_per_dataset == {1: 12}

    loader.batch_tracker.reset()
    take(loader, 1)
    assert loader.batch_tracker.n_samples_per_dataset == {1: 3}


def test_epoch_rises_when_the_next_pass_is_asked_for_and_not_before():
    """A shuffling sampler is notified the new epoch with the first batch of the next pass."""
    sampler = DistributedSampler(range(6), num_replicas=1, rank=0, shuffle=True)
    loader = RepeatingLoader(DataLoader(torch.arange(6), batch_size=2, sampler=sampler))

    first = torch.cat(take(loader, 3))
    assert sampler.epoch == 0
    second = torch.cat(take(loader, 3))

    assert sampler.epoch == 1
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(6))
    assert first.tolist() != second.tolist()
    take(loader, 1)
    assert sampler.epoch == 2


def test_epoch_continues_from_the_samplers_own():
    """A resumed sampler's epoch is counted on, not started again."""
    sampler = StatefulDistributedSampler(range(4), 1, 0, epoch=5, total_consumed_samples=2)
    loader = RepeatingLoader(DataLoader(torch.arange(4), batch_size=2, sampler=sampler))

    batches = take(loader, 3)

    assert sampler.epoch == 6
    assert torch.cat(batches[1:]).tolist() == np.random.default_rng(48).permutation(4).tolist()


def test_sampler_that_does_not_shuffle_is_left_alone():
    """``set_epoch`` is for samplers that shuffle."""
    sampler = DistributedSampler(range(4), num_replicas=1, rank=0, shuffle=False)
    loader = RepeatingLoader(DataLoader(torch.arange(4), batch_size=2, sampler=sampler))

    take(loader, 5)

    assert sampler.epoch == 0


def test_sampler_inside_a_batch_sampler_is_told_as_well():
    """A batch sampler hides the sampler that shuffles."""
    sampler = DistributedSampler(range(6), num_replicas=1, rank=0, shuffle=True)
    loader = RepeatingLoader(DataLoader(torch.arange(6), batch_sampler=BatchSampler(sampler, 3, False)))

    take(loader, 3)

    assert sampler.epoch == 1


def test_lading_loader_goes_on_to_its_next_epoch():
    """Its plan says what comes; the tracker is fed from bills, even for tuple batches."""
    data = TensorDataset(torch.arange(10))
    inner = Loader({"numbers": data}, batch_size=4, seed=3)
    loader = RepeatingLoader(inner, True)

    seen = [next(loader)[0].tolist() for _ in range(7)]

    assert seen == [inner.plan.bill(step).idx.tolist() for step in range(7)]
    assert inner.last_bill.epoch == 2
    assert loader.batch_tracker.n_samples_per_dataset == {0: 24}


def test_lading_loader_resumes_after_it_was_wrapped():
    """The first pass begins at first use, where the loaded state points."""
    data = {"numbers": TensorDataset(torch.arange(10))}
    before = Loader(data, batch_size=4, seed=3)
    wrapped = RepeatingLoader(before)
    take(wrapped, 4)
    state = before.state_dict()

    after = Loader(data, batch_size=4, seed=3)
    resumed = RepeatingLoader(after)
    after.load_state_dict(state)

    assert [next(resumed)[0].tolist() for _ in range(3)] == [next(wrapped)[0].tolist() for _ in range(3)]


def test_tracker_that_the_loader_feeds_itself_is_not_fed_twice():
    """One batch, one record."""
    tracker = BatchTracker()
    loader = RepeatingLoader(Loader({"n": TensorDataset(torch.arange(4))}, batch_size=2, tracker=tracker), tracker)

    take(loader, 2)

    assert tracker.n_samples_per_dataset == {0: 4}


def test_empty_loader_says_why_it_may_be_empty():
    """``drop_last``, a used-up generator, an empty dataset: each is named."""
    with pytest.raises(LoaderError, match="the DataLoader gave no batch, so it cannot be repeated: drop_last drops"):
        next(RepeatingLoader(DataLoader(torch.arange(3), batch_size=4, drop_last=True)))
    with pytest.raises(LoaderError, match=r"the list gave no batch.*the dataset is empty.*drop_last.*generator"):
        next(RepeatingLoader([]))

    once = RepeatingLoader(i for i in range(2))
    assert take(once, 2) == [0, 1]
    with pytest.raises(LoaderError, match=r"a generator can be read only once, and it is used up"):
        next(once)


def test_batches_without_names_are_said_once():
    """The tracker warns through the loader as it does by itself."""
    loader = RepeatingLoader(DataLoader(torch.arange(2)), True)

    with pytest.warns(UserWarning, match=r"carries no 'idx' and 'dataset_idx'"):
        next(loader)
    next(loader)

    assert loader.batch_tracker.n_untracked_batches == 2


def test_content_of_repeated_batches_is_recorded(tmp_path):
    """A ledger that records content gets the batch, not only its bill: the first version recorded none."""
    ledger = Ledger(tmp_path / "run", record="content")
    batches = RepeatingLoader(Loader({"numbers": np.arange(6)}, 3, shuffle=False), use_batch_tracker=ledger)
    for _ in range(2):
        next(batches)
        ledger.commit(batches.loader.last_bill)
    ledger.close()

    found = open_run(tmp_path / "run").content_of(1)

    assert [f"{found[slot] & (2**64 - 1):016x}" for slot in range(3)] == [content_hash(n) for n in (3, 4, 5)]


def test_a_repeated_loader_counts_rows():
    """The loader inside does it, in every pass."""
    passes = iter([False] * 3 + [True])
    collate = lambda samples: torch.tensor(samples[next(passes) :])  # noqa: E731

    batches = RepeatingLoader(Loader(list(range(8)), 4, collate_fn=collate))

    assert all(len(next(batches)) == 4 for _ in range(3))
    with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows"):
        next(batches)
