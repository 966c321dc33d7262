"""Rules of CONTRACT.md, section 1, for the sampler that starts in the middle of an epoch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch.utils.data import DataLoader, DistributedSampler

from lading.errors import PlanError, WorldError
from lading.loader.torch.distributed_sampler import StatefulDistributedSampler

cases = st.tuples(st.integers(1, 40), st.integers(1, 5), st.booleans(), st.integers(0, 3))


def ranks_of(size, num_replicas, **arguments):
    """Return the samplers of all ranks."""
    return [StatefulDistributedSampler(range(size), num_replicas, r, **arguments) for r in range(num_replicas)]


def dealt(samplers):
    """Return the order as dealt, taking one sample of each rank in turn."""
    taken = [list(s) for s in samplers]
    longest = max(map(len, taken))
    return [rank[i] for i in range(longest) for rank in taken if i < len(rank)]


def test_is_a_torch_distributed_sampler_with_the_original_defaults():
    """Frameworks ask by isinstance."""
    sampler = StatefulDistributedSampler(range(4))

    assert isinstance(sampler, DistributedSampler)
    assert (sampler.shuffle, sampler.seed, sampler.drop_last, sampler.epoch) == (True, 42, False, 0)
    assert (sampler.num_replicas, sampler.rank, sampler.total_consumed_samples) == (1, 0, 0)


@given(cases)
def test_order_is_numpys_permutation_of_seed_plus_epoch(case):
    """Rank r takes every n-th from r; the head fills up, or the end is cut."""
    size, ranks, drop_last, epoch = case
    samplers = ranks_of(size, ranks, drop_last=drop_last, epoch=epoch, seed=7)

    order = np.random.default_rng(7 + epoch).permutation(size).tolist()

    total = size // ranks * ranks if drop_last else -(-size // ranks) * ranks
    if total == 0:
        assert all(len(s) == 0 == len(list(s)) for s in samplers)
    else:
        assert dealt(samplers) == (order * 6)[:total]


def test_without_shuffle_the_order_is_the_dataset():
    """0 to n-1, dealt in turn."""
    assert list(StatefulDistributedSampler(range(5), 2, 0, shuffle=False)) == [0, 2, 4]
    assert list(StatefulDistributedSampler(range(5), 2, 1, shuffle=False)) == [1, 3, 0]
    assert list(StatefulDistributedSampler(range(5), 2, 1, shuffle=False, drop_last=True)) == [1, 3]


@given(cases, st.data())
def test_first_epoch_goes_on_where_it_stopped_and_later_ones_are_whole(case, data):
    """The rest of the first epoch is exactly what is left; nothing is skipped again."""
    size, ranks, drop_last, epoch = case
    whole = ranks_of(size, ranks, drop_last=drop_last, epoch=epoch)
    total = whole[0].total_size
    consumed = data.draw(st.integers(0, max(total // ranks - 1, 0))) * ranks
    passes = data.draw(st.integers(0, 3))  # of a whole run: full epochs before count, too
    resumed = ranks_of(size, ranks, drop_last=drop_last, epoch=epoch, total_consumed_samples=consumed + passes * total)

    if total:
        assert dealt(resumed) == dealt(whole)[consumed:]
    for sampler in (*whole, *resumed):
        sampler.set_epoch(epoch + 1)
    assert [list(s) for s in resumed] == [list(s) for s in whole]


@given(cases, st.integers(0, 40))
def test_length_is_what_is_yielded(case, consumed):
    """On every rank, in the first epoch and in later ones, whatever was consumed."""
    size, ranks, drop_last, epoch = case
    for sampler in ranks_of(size, ranks, drop_last=drop_last, epoch=epoch, total_consumed_samples=consumed):
        for e in (epoch, epoch + 1, epoch + 2):
            sampler.set_epoch(e)
            expected = len(sampler)
            assert len(list(sampler)) == expected == len(sampler)


def test_second_pass_is_whole_even_where_nobody_sets_the_epoch():
    """Loops without shuffling do not call ``set_epoch``; their second pass must not skip again."""
    sampler = StatefulDistributedSampler(range(6), 2, 0, shuffle=False, total_consumed_samples=4)

    assert list(sampler) == [4]
    assert list(sampler) == [0, 2, 4]


def test_abandoned_pass_starts_at_the_same_place():
    """Breaking off does not use the skip up."""
    sampler = StatefulDistributedSampler(range(6), 1, 0, shuffle=False, total_consumed_samples=2)

    assert next(iter(sampler)) == 2
    assert list(sampler) == [2, 3, 4, 5]


def test_dataloader_length_agrees():
    """A DataLoader around it knows its length, mid-epoch too."""
    data = torch.arange(20)
    sampler = StatefulDistributedSampler(data, 2, 1, total_consumed_samples=6)
    loader = DataLoader(data, batch_size=3, sampler=sampler)

    assert len(loader) == len(list(loader)) == 3


def test_ranks_come_from_the_environment(monkeypatch):
    """As everywhere in Lading: arguments, process group, environment."""
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")

    sampler = StatefulDistributedSampler(range(6), shuffle=False)

    assert list(sampler) == [2, 5]


GRID = list(itertools.product((1, 5, 11, 12), (1, 2, 4), (0, 2, 7, 30), (0, 3), (False, True), (False, True)))


@pytest.mark.parametrize(("size", "ranks", "consumed", "epoch", "drop_last", "shuffle"), GRID)
def test_each_rank_skips_its_share_of_a_whole_run(size, ranks, consumed, epoch, drop_last, shuffle):
    """``(consumed // ranks) % num_samples`` of the contract's order; empty where a rank has no sample."""
    order = np.random.default_rng(42 + epoch).permutation(size).tolist() if shuffle else list(range(size))
    total = size // ranks * ranks if drop_last else -(-size // ranks) * ranks
    order, share = (order * ranks)[:total], total // ranks
    settings = {"shuffle": shuffle, "drop_last": drop_last, "epoch": epoch, "total_consumed_samples": consumed}

    for rank, sampler in enumerate(ranks_of(size, ranks, **settings)):
        skipped = consumed // ranks % share if share else 0
        expected = order[rank::ranks][skipped:]
        assert len(sampler) == len(expected) == share - skipped
        assert list(sampler) == expected
        sampler.set_epoch(epoch + 1)
        assert len(sampler) == len(list(sampler)) == share


def test_misuse_is_named():
    """Fewer consumed than none, and an impossible rank."""
    with pytest.raises(PlanError, match="total_consumed_samples is -1: expected 0 or above"):
        StatefulDistributedSampler(range(5), 2, 0, total_consumed_samples=-1)
    with pytest.raises(WorldError, match="rank 2 of world size 2 is impossible"):
        StatefulDistributedSampler(range(5), 2, 2)
