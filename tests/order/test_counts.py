"""Samples of each dataset in some steps, counted without a look at each."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from lading.order.counts import counts_of_steps
from lading.order.plan import Plan


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
