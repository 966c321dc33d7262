"""How many different samples a mixture has shown: exact where it is counted, near where it is estimated."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lading.order import simulation
from lading.order.dataset import PlannedDataset
from lading.order.mixture.request import Mixture
from lading.order.plan import Plan
from lading.order.simulation import reached

DATA = (PlannedDataset("tiny", 5), PlannedDataset("small", 700), PlannedDataset("large", 9000))


def planned(drop_last: bool = False, **request) -> Plan:
    """Return a plan of three datasets in steps of 90 samples."""
    return Plan.make(DATA, 90, seed=2, drop_last=drop_last, mixture=Mixture(**request))


def different(plan: Plan, steps: int) -> list[int]:
    """Count by walking through the bills."""
    seen = {sample for step in range(steps) for sample in plan.bill(step).samples}
    return [sum(sample.dataset == d for sample in seen) for d in range(len(plan.datasets))]


@given(st.integers(0, 60), st.sampled_from(["restart", "first_exhausted", "all_exhausted"]))
def test_reached_is_what_the_bills_show(steps, stopping):
    """Over epochs, for every way of stopping."""
    plan = planned(weights=[0.01, 0.3, 0.7], stopping=stopping)
    steps = min(steps, 3 * plan.epoch_steps(0))

    assert reached(plan.order, plan.locate(steps).position) == different(plan, steps)


@given(st.integers(1, 60), st.booleans())
def test_simulations_of_mixtures_are_exact(steps, drop_last):
    """Coverage and repeats with tails dropped in several epochs."""
    plan = planned(drop_last, weights=[0.01, 0.3, 0.7], epoch_samples=1000)

    said = plan.simulate(steps)

    assert [round(said.coverage[d.name] * d.length) for d in DATA] == different(plan, steps)
    assert sum(said.delivered.values()) == sum(plan.bill(step).num_samples for step in range(steps))


def test_long_runs_of_epochs_are_estimated(monkeypatch):
    """Too many draws to mark each: the expectation of independent choices, within a percent here."""
    plan = planned(weights=[0.01, 0.3, 0.7], stopping="first_exhausted")
    position = 40 * plan.epoch_samples + 100
    counted = reached(plan.order, position)

    monkeypatch.setattr(simulation, "COUNTED_DRAWS", 0)

    assert reached(plan.order, position) == pytest.approx(counted, rel=0.02)
