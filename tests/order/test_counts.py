"""Samples of each dataset in some steps, counted without a look at each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.order.counts import counts_of_steps
from lading.order.event import Block
from lading.order.permutation import permute, side
from lading.order.plan import Plan
from lading.order.shuffle import Shuffled
from lading.runtime import compiled


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=6).filter(any),
    st.sampled_from(["full", "window", "none"]),
    st.data(),
)
def test_a_shuffled_order_counts_what_it_has(lengths, shuffle, data):
    """In some steps of an epoch, whichever side of its borders has fewer samples to look at."""
    plan = Plan.make(dict(zip("abcdef", lengths, strict=False)), 8, shuffle=shuffle, window_samples=16)
    first = data.draw(st.integers(0, 3 * plan.epoch_steps(0)))
    steps = np.arange(first, data.draw(st.integers(first, first + 2 * plan.epoch_steps(0))))

    named = [plan.bill(step).dataset_idx for step in steps.tolist()]

    found = np.bincount(np.concatenate([np.empty(0, np.int64), *named]), minlength=len(lengths))
    assert counts_of_steps(plan, steps).tolist() == found.tolist()


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from([0, 1, 2, 300, 20_000, 70_000, 150_000]), min_size=2, max_size=40).filter(any),
    st.sampled_from(["full", "window", "none"]),
    st.data(),
)
def test_the_smaller_part_of_an_epoch_is_counted_and_the_rest_follows(lengths, shuffle, data):
    """Law: before any position as many as a look at each sample finds; compiled and plain."""
    n, kernels = sum(lengths), compiled.kernels
    position = data.draw(st.integers(0, 2 * n))
    datasets, _ = Shuffled(tuple(lengths), 5, shuffle, 64, {}).samples(position // n * n, position)
    wanted = position // n * np.array(lengths) + np.bincount(datasets, minlength=len(lengths))

    for used in (kernels, None):
        with pytest.MonkeyPatch.context() as way:
            way.setattr(compiled, "kernels", used)
            assert Shuffled(tuple(lengths), 5, shuffle, 64, {}).counts(position) == wanted.tolist()


@given(st.lists(st.integers(1, 300), min_size=2, max_size=6), st.data())
def test_blocked_samples_change_no_count(lengths, data):
    """Law: what comes in their place is of the same dataset, from whichever step on they are blocked."""
    plan = Plan.make(dict(zip("abcdef", lengths, strict=False)), 8)
    steps = np.arange(data.draw(st.integers(1, 3 * plan.epoch_steps(0))))
    since, dataset = data.draw(st.integers(0, len(steps))), data.draw(st.integers(0, len(lengths) - 1))
    blocked = data.draw(st.sets(st.integers(0, lengths[dataset] - 1), max_size=lengths[dataset] // 2))
    plan = plan.with_events([Block(since, dataset, tuple(sorted(blocked)))])

    named = np.concatenate([plan.bill(step).dataset_idx for step in steps.tolist()])

    assert counts_of_steps(plan, steps).tolist() == np.bincount(named, minlength=len(lengths)).tolist()


@pytest.mark.skipif(not compiled.enabled(), reason="nothing is compiled here")
@settings(deadline=None)
@given(
    st.one_of(st.integers(1, 70), st.integers(1, 1 << 17), st.integers(1, 1 << 63)),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 5000),
    st.data(),
)
def test_the_kernel_counts_what_lies_at_the_positions(n, key, number, data):
    """Law: the owners of the elements, one by one; stretches of any length, wherever their borders cut a row."""
    first = data.draw(st.integers(0, n))
    stop = min(first + number, n)
    row = int(side(n)[0])
    near = st.one_of(st.integers(0, n - 1), st.builds(lambda k, d: min(max(k * row + d, 0), n - 1),
                                                      st.integers(0, row), st.integers(-2, 2)))  # fmt: skip
    starts = np.array([0, *sorted(data.draw(st.lists(near, max_size=60)))], dtype=np.int64)
    found = np.zeros(len(starts), dtype=np.int64)

    compiled.kernels.owner_counts(n, row, key, starts, first, stop, found)

    places = np.arange(first, stop, dtype=np.uint64)
    elements = permute(np.array([n], dtype=np.uint64), np.array([key], dtype=np.uint64), places)
    owners = np.searchsorted(starts, elements, side="right") - 1
    assert found.tolist() == np.bincount(owners, minlength=len(starts)).tolist()
