"""The curriculum's numbers and the stateless draw of steering variants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import SourceError
from lading.kits.jasper.steering import VARIANTS, Steering, SteeringCurriculum, variant_number

shares = st.lists(st.integers(0, 100), min_size=4, max_size=4).filter(any).map(lambda w: tuple(x / sum(w) for x in w))


def test_variants_are_numbered_and_have_aliases():
    """The four names, in order, and the two names the sibling documents use."""
    assert [variant_number(name) for name in VARIANTS] == [0, 1, 2, 3]
    assert (variant_number("none"), variant_number("keyword_weighted")) == (0, 2)


@pytest.mark.parametrize("name", ["sideways", "", 2])
def test_unknown_variant_is_refused_by_name(name):
    """The message begins as the original's."""
    with pytest.raises(ValueError, match=f"^Invalid steering variant: {name}"):
        variant_number(name)


def test_without_curriculum_the_configured_probabilities_hold_at_every_epoch():
    """No curriculum, no change."""
    given = {"zero": 0.1, "centroid": 0.2, "keyword": 0.3, "residual": 0.4}
    steering = Steering.from_config({"steering_probabilities": given})

    assert [steering.probabilities(epoch) for epoch in (0, 7, 500)] == [given] * 3


def test_probabilities_default_to_a_quarter_each():
    """A config without probabilities."""
    assert Steering.from_config({}).probabilities(3) == dict.fromkeys(VARIANTS, 0.25)


@pytest.mark.parametrize(("epoch", "zero"), [(0, 0.5), (50, 0.3), (100, 0.1), (1000, 0.1)])
def test_curriculum_moves_zero_steering_linearly(epoch, zero):
    """progress = min(epoch / epochs_total, 1), zero = start + (end - start) * progress."""
    steering = Steering.from_config({"curriculum": {"zero_prob_start": 0.5, "zero_prob_end": 0.1, "epochs_total": 100}})

    probs = steering.probabilities(epoch)

    assert probs["zero"] == pytest.approx(zero)
    assert probs["centroid"] == probs["keyword"] == probs["residual"] == pytest.approx((1 - zero) / 3)


def test_curriculum_defaults_are_the_originals():
    """.5 to .1 over 100 epochs."""
    assert Steering.from_config({"curriculum": {"epochs_total": 100}}).curriculum == SteeringCurriculum(0.5, 0.1, 100)
    assert Steering.from_config({"curriculum": {}}).curriculum is None


@given(shares, st.integers(0, 300), st.integers(0, 200))
def test_the_other_three_keep_their_ratio_and_share_the_rest(base, epoch, total):
    """For all configurations; a configured zero of 1 gives the rest to centroid."""
    probs = Steering(base, SteeringCurriculum(0.6, 0.2, total)).probabilities(epoch)

    assert math.isclose(sum(probs.values()), 1)
    rest, others = 1 - probs["zero"], sum(base[1:])
    expected = [rest * p / others for p in base[1:]] if others else [rest, 0, 0]
    assert [probs[name] for name in VARIANTS[1:]] == pytest.approx(expected)


@given(shares, st.integers(0, 1000), st.integers(0, 2**40))
def test_one_draw_equals_the_draw_of_many(base, epoch, pair):
    """The sample's way and the batch's way give the same variant, and never one of probability 0."""
    steering = Steering(base)

    variant = steering.variant(pair, epoch)

    assert variant == steering.variants(np.array([pair, 1]), epoch)[0]
    assert base[variant] > 0


@pytest.mark.parametrize("epoch", [0, 60])
def test_frequencies_follow_the_probabilities_over_many_draws(epoch):
    """10^5 pairs: every count within five standard deviations."""
    steering, n = Steering((0.1, 0.2, 0.3, 0.4), SteeringCurriculum()), 100_000

    counts = np.bincount(steering.variants(np.arange(n), epoch), minlength=4)

    for count, p in zip(counts, steering.probabilities(epoch).values(), strict=True):
        assert abs(count - n * p) < 5 * math.sqrt(n * p * (1 - p))


def test_draws_of_neighbouring_epochs_and_pairs_are_independent():
    """Equal variants in two epochs are as frequent as chance makes them."""
    steering, n = Steering(), 100_000
    one, two = (steering.variants(np.arange(n), epoch) for epoch in (3, 4))

    for same in (one == two, one[1:] == one[:-1]):
        assert abs(same.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / n)


def test_draws_are_frozen():
    """Golden: a change here changes every run ever made."""
    assert Steering().variants(np.arange(12), 0).tolist() == GOLDEN_EPOCH_0
    assert Steering().variants(np.arange(12), 7).tolist() == GOLDEN_EPOCH_7


GOLDEN_EPOCH_0 = [0, 3, 2, 2, 1, 3, 1, 0, 3, 0, 3, 2]
GOLDEN_EPOCH_7 = [2, 2, 3, 3, 2, 1, 1, 3, 2, 0, 2, 3]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"steering_probabilities": [1]}, "expected an object with zero, centroid, keyword, residual"),
        ({"steering_probabilities": {"zero": 0.5}}, "sum to 0.5, expected 1"),
        ({"steering_probabilities": {"zero": -1, "centroid": 2}}, r"\['zero'\] is -1, expected a probability"),
        ({"steering_probabilities": {"up": 1}}, "Invalid steering variant: up"),
        ({"curriculum": [1]}, "curriculum is"),
        ({"curriculum": {"zero_prob_start": 2}}, "zero_prob_start'] is 2, expected a probability"),
        ({"curriculum": {"epochs_total": "ten"}}, "epochs_total'] is 'ten', expected a number"),
    ],
)
def test_impossible_configs_are_named(config, message):
    """Each error says which key and what was expected."""
    with pytest.raises(SourceError, match=message):
        Steering.from_config(config)


def test_aliases_work_in_the_config_too():
    """none and keyword_weighted as keys of steering_probabilities."""
    steering = Steering.from_config({"steering_probabilities": {"none": 0.5, "keyword_weighted": 0.5}})

    assert steering.probabilities(0) == {"zero": 0.5, "centroid": 0, "keyword": 0.5, "residual": 0}
