"""How long a run is: epochs of the plan, tokens by their means, hours of training without what lay between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.report.runs import record

from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run
from lading.report.length import all_seconds, length, trained_seconds


def test_time_between_attempts_is_not_trained():
    """A resume a day later adds nothing but its own steps; a clock that goes back takes nothing away."""
    attempts = np.array([0, 0, 0, 1, 1, 1])
    times = np.array([0, 1000, 2500, 86_400_000, 86_401_000, 86_400_500])

    assert trained_seconds(attempts, times).tolist() == [0.0, 1.0, 2.5, 2.5, 3.5, 3.5]
    for count in range(1, 7):
        assert all_seconds(attempts[:count], times[:count]) == trained_seconds(attempts[:count], times[:count])[-1]
    assert all_seconds(attempts[:0], times[:0]) == 0


def test_epochs_and_tokens_are_those_of_the_plan(tmp_path):
    """30 of 50 steps of the second epoch; tokens where every dataset that was used has a mean."""
    plan = Plan.make({"a": 300, "b": 500}, batch_size=16, seed=1)
    counted = replace(
        plan, datasets=tuple(replace(d, mean_tokens=m) for d, m in zip(plan.datasets, (100, 10), strict=True))
    )
    record(tmp_path / "plain", range(80), plan=plan)
    record(tmp_path / "counted", range(80), plan=counted)

    plain, found = length(open_run(tmp_path / "plain")), length(open_run(tmp_path / "counted"))

    used = {row["dataset"]: row["samples"] for row in open_run(tmp_path / "counted").mix()}
    assert found["tokens"] == 100 * used["a"] + 10 * used["b"] and plain["tokens"] is None
    assert found["epochs"] == pytest.approx(1.6) and found["epoch_steps_left"] == 20
    assert found["samples"] == 1280 and found["seconds"] >= 0


def test_nothing_is_said_of_what_is_not_known(tmp_path):
    """An observed run has no epochs; a run of one step no speed; one of none no length."""
    with Ledger(tmp_path / "one", names=["a"]) as ledger:
        ledger.commit(Plan.make(30, batch_size=4).bill(0))
    ledger = Ledger(tmp_path / "none", Plan.make(30, batch_size=4))
    ledger.begin(0)
    ledger.close()

    one, none = length(open_run(tmp_path / "one")), length(open_run(tmp_path / "none"))

    assert (one["epochs"], one["steps_per_second"], one["samples"]) == (None, None, 4)
    assert (none["epochs"], none["steps_per_second"], none["samples"], none["tokens"]) == (0, None, 0, None)
