"""Bias: dropping that depends on the seconds is seen, and fair dropping is not accused."""

from __future__ import annotations

import numpy as np
import pytest

from lading.report.bias import p_of_dropping


def made(seed: int, groups: int = 128, size: int = 8):
    """Return groups and seconds of rollouts whose groups are slow or fast together."""
    chance = np.random.default_rng(seed)
    number = np.repeat(np.arange(groups), size)
    return chance, number, chance.lognormal(size=groups)[number] * chance.lognormal(size=groups * size)


@pytest.mark.parametrize("unit", ["rollouts", "groups"])
def test_fair_dropping_is_not_accused(unit: str):
    """Law 6: p > 0.01 in at least 98 of 100 runs, whether single rollouts or whole groups are dropped."""
    fair = 0
    for seed in range(100):
        chance, groups, seconds = made(seed)
        dropped = chance.random(len(groups)) < 0.3 if unit == "rollouts" else (chance.random(128) < 0.3)[groups]
        found = p_of_dropping(groups, seconds, dropped)
        fair += found is not None and found > 0.01

    assert fair >= 98


@pytest.mark.parametrize("size", [1, 8])
def test_dropping_the_slowest_tenth_is_seen(size: int):
    """Law 6: p < 10^-6, in each of 20 runs, with groups and without."""
    for seed in range(20):
        _, groups, seconds = made(seed, 1024 // size, size)
        found = p_of_dropping(groups, seconds, seconds > np.quantile(seconds, 0.9))
        assert found is not None and found < 1e-6


def test_nothing_to_compare_is_said():
    """Nothing dropped, all the same seconds, unknown seconds, nothing at all."""
    groups, seconds, dropped = np.arange(8) // 2, np.arange(8.0), np.arange(8) % 2 == 0

    assert p_of_dropping(groups, seconds, np.zeros(8, bool)) is None
    assert p_of_dropping(groups, np.ones(8), dropped) is None
    assert p_of_dropping(groups, np.full(8, np.nan), dropped) is None
    assert p_of_dropping(groups[:0], seconds[:0], dropped[:0]) is None
