"""Spikes are found by ruling out most steps, and none is lost by it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.report.losses import _candidates, _scores_at, spike_scores

KINDS = {
    "normal": lambda rng, n: rng.normal(2, 0.1, n),
    "heavy tails": lambda rng, n: rng.standard_cauchy(n),
    "few values": lambda rng, n: np.round(rng.normal(0, 1, n)),
    "constant": lambda rng, n: np.full(n, 2.0),
}


@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 900),
    st.sampled_from([3, 8, 16, 17, 30, 64, 65, 100]),
    st.sampled_from([0.0, 1.0, 6.0]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_no_spike_is_ruled_out(kind, size, window, threshold, wild, seed):
    """What is found among the candidates is what is found among all steps."""
    rng = np.random.default_rng(seed)
    loss = KINDS[kind](rng, size)
    if wild:
        loss[rng.integers(0, size, 5)] = [np.nan, np.inf, -np.inf, 9.0, 50.0]

    score, usual = spike_scores(loss, window)
    places = _candidates(loss, window, threshold)
    mine, mine_usual = _scores_at(loss, places, window)

    expected = np.flatnonzero((score > threshold) | ~np.isfinite(loss))
    assert places[(mine > threshold) | ~np.isfinite(loss[places])].tolist() == expected.tolist()
    np.testing.assert_array_equal(mine, score[places])
    np.testing.assert_array_equal(mine_usual, usual[places])


def test_most_steps_are_ruled_out():
    """Otherwise a million steps would take seconds."""
    loss = np.random.default_rng(0).normal(2, 0.02, 100_000)

    assert len(_candidates(loss, 64, 6.0)) < 5_000


@pytest.mark.parametrize("place", [64, 100, 500, 999])
def test_a_step_that_stands_out_is_found_wherever_it_is(place):
    """At the edges of the blocks, too."""
    loss = np.random.default_rng(1).normal(2, 0.02, 1000)
    loss[place] = 3.0

    assert place in _candidates(loss, 64, 6.0)
