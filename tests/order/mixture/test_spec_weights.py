"""Weights become integers exactly, and nonsense is refused with a sentence."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from lading.errors import MixtureError
from lading.order.mixture.spec import TOTAL, integer_weights, named_weights, sample_weights, shares, tempered

floats = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.sampled_from([1e-6, 0.5, 1.0]))
some_weights = st.lists(floats, min_size=1, max_size=50).filter(any)


@given(some_weights)
def test_integers_sum_to_the_total_and_keep_the_zeros(weights):
    """The integers are a partition of 2**31 in which only zeros are zero."""
    integers = integer_weights(weights)

    assert sum(integers) == TOTAL
    assert [w == 0 for w in weights] == [i == 0 for i in integers]


@given(some_weights)
def test_integers_are_next_to_the_exact_shares(weights):
    """No integer is further than one unit from the exact share, but for what lifting tiny ones to 1 costs."""
    integers = integer_weights(weights)

    whole = sum(map(Fraction, weights))
    exact = [Fraction(w) * TOTAL / whole for w in weights]
    lifted = sum(1 for e in exact if 0 < e < 1)
    assert all(abs(i - e) <= 1 + lifted for i, e in zip(integers, exact, strict=True))


def test_scaling_the_weights_changes_nothing():
    """Weights are proportions."""
    assert integer_weights([1, 2, 4]) == integer_weights([0.25, 0.5, 1.0])


def test_ties_go_to_the_lower_number():
    """A rest that cannot be shared goes to the first datasets."""
    assert integer_weights([1, 1, 1]) == (715827883, 715827883, 715827882)


def test_excess_of_lifted_weights_is_taken_from_the_largest():
    """Many weights below one unit are lifted to 1, at the cost of the largest."""
    assert integer_weights([1e-15] * 5 + [1.0, 0.25]) == (1, 1, 1, 1, 1, 1717986914, 429496729)


@pytest.mark.parametrize("bad", [[1, -0.1], [float("nan"), 1], [float("inf"), 1], ["a", 1], [None, 1]])
def test_weights_that_are_no_weights_are_refused(bad):
    """Negative, NaN, infinite and not numbers."""
    with pytest.raises(MixtureError, match="expected a finite number, 0 or above"):
        integer_weights(bad)


def test_all_zero_and_empty_weights_are_refused():
    """Nothing would ever be drawn."""
    with pytest.raises(MixtureError, match="all weights are zero"):
        integer_weights([0, 0.0])
    with pytest.raises(MixtureError, match="0 weights were given"):
        integer_weights([])


def test_names_must_be_those_of_the_datasets():
    """Unknown names, missing names and lists of another length are named in the error."""
    with pytest.raises(MixtureError, match="weights name 'cdoe', but the datasets are 'code', 'prose'"):
        named_weights({"cdoe": 1, "prose": 1}, ["code", "prose"])
    with pytest.raises(MixtureError, match="say nothing about 'prose'"):
        named_weights({"code": 1}, ["code", "prose"])
    with pytest.raises(MixtureError, match="3 weights were given for 2 datasets"):
        named_weights([1, 2, 3], ["code", "prose"])


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20).filter(any), st.floats(0.1, 100))
def test_temperature_keeps_the_order_of_shares(lengths, temperature):
    """Shares are flattened or sharpened, never swapped; zeros stay zero."""
    flat = tempered(lengths, temperature)

    assert math.isclose(sum(flat), 1)
    ranked = sorted(range(len(lengths)), key=lambda d: lengths[d])
    assert all(flat[a] <= flat[b] * (1 + 1e-12) for a, b in itertools.pairwise(ranked))


def test_temperature_one_keeps_and_infinity_evens_out():
    """The two ends of the scale, and nonsense."""
    assert integer_weights(tempered([1, 3], 1)) == integer_weights([1, 3])
    assert tempered([1, 3, 0], math.inf) == [0.5, 0.5, 0.0]
    for bad in (0, -1, float("nan"), "hot"):
        with pytest.raises(MixtureError, match="expected a number above 0"):
            tempered([1, 2], bad)


def test_tokens_become_samples_through_the_mean():
    """Ten times longer documents are drawn ten times less often."""
    assert integer_weights(sample_weights([1, 1], [100, 1000], ["a", "b"])) == integer_weights([10, 1])
    with pytest.raises(MixtureError, match="mean tokens per sample of 'b'"):
        sample_weights([1, 1], [100, None], ["a", "b"])


def test_shares_are_fractions_of_one():
    """Integers back to what a person reads."""
    assert shares(integer_weights([1, 3])) == [0.25, 0.75]
