"""Forecasts: what a plan will do to each dataset, counted without visiting the steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.order.dataset import PlannedDataset
from lading.order.event import Reweight
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import integer_weights
from lading.order.plan import Plan
from lading.order.simulation import changes, forecast

DATA = (PlannedDataset("code", 3000, mean_tokens=10), PlannedDataset("prose", 400), PlannedDataset("web", 90_000))


def planned(**request) -> Plan:
    """Return a plan of the three datasets in steps of 100."""
    return Plan.make(DATA, 100, mixture=Mixture(**request))


@given(st.integers(1, 120), st.lists(st.floats(0.01, 1), min_size=3, max_size=3))
def test_forecast_counts_what_the_bills_hold(steps, weights):
    """Samples, passes and the step that uses a dataset up, against walking through all bills."""
    plan = planned(weights=weights)

    found = forecast(plan, steps, points=10)

    drawn, used_up = np.zeros(3, dtype=int), {}
    for step in range(steps):
        drawn += np.bincount(plan.bill(step).dataset_idx, minlength=3)
        for d in np.flatnonzero(drawn >= np.array(plan.lengths)).tolist():
            used_up.setdefault(d, step)
    assert [d.samples for d in found.datasets] == drawn.tolist()
    assert [d.used_up for d in found.datasets] == [used_up.get(d) for d in range(3)]
    assert found.datasets[0].tokens == drawn[0] * 10 and found.datasets[1].tokens is None
    assert found.at_steps[0] == 0 and found.at_steps[-1] == steps
    assert all(sum(found.shares[n][k] for n in plan.names) == pytest.approx(1) for k in range(len(found.at_steps)))


def test_changes_are_the_steps_in_which_weights_change():
    """Planned stages and reweightings alike; those beyond the end are left out."""
    plan = planned(schedule=[(0, [1, 1, 1]), ("50ba", [1, 2, 3]), ("5000ba", [3, 2, 1])])
    plan = plan.with_event(Reweight(60, 6000, integer_weights([1, 0, 0])))

    assert changes(plan, 1000) == (50, 60)
    assert changes(Plan.make(100, 10), 5) == ()


def test_without_weights_a_dataset_is_used_up_with_its_epoch():
    """Every sample once an epoch, so the first pass ends with the first epoch."""
    found = forecast(Plan.make({"a": 60, "b": 40}, 10), 25)

    assert [(d.samples, d.passes, d.used_up) for d in found.datasets] == [
        (found.datasets[0].samples, found.datasets[0].samples / 60, 9),
        (found.datasets[1].samples, found.datasets[1].samples / 40, 9),
    ]
    assert found.samples == 250
