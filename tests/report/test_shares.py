"""What a step has more of than was to be expected of that step."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.runs import PLAN, record

from lading.ledger import Ledger
from lading.order import Mixture, Plan
from lading.report import open_run


def test_a_schedule_blames_no_dataset(tmp_path: Path):
    """The mean of the run is 50 %; the plan of step 15 says 90 %: that it has 90 % is no hint at all."""
    mixture = Mixture(schedule=[(0, {"a": 1, "b": 9}), (10, {"a": 9, "b": 1})])
    record(tmp_path, range(20), plan=Plan.make({"a": 500, "b": 500}, batch_size=20, mixture=mixture))

    rows = open_run(tmp_path).explain(15).shares.dicts()

    assert [(row["dataset"], row["samples"]) for row in rows] == [("a", 18), ("b", 2)]
    assert [(row["usual"], row["ratio"]) for row in rows] == [(None, None)] * 2


@pytest.mark.parametrize("shuffle", ["none", "window"])
def test_an_order_that_goes_dataset_by_dataset_blames_none(tmp_path: Path, shuffle: str):
    """All of a step is of one dataset, as planned."""
    record(tmp_path, range(10), plan=Plan.make({"a": 500, "b": 500}, batch_size=20, shuffle=shuffle))

    assert {row["usual"] for row in open_run(tmp_path).explain(3).shares} == {None}


def test_what_a_shuffle_leaves_to_chance_is_compared_with_the_plan(rolled_back: Path):
    """700 and 301 samples: a step is expected to hold them by their lengths."""
    rows = open_run(rolled_back).explain(70).shares.dicts()

    assert [row["usual"] for row in rows] == pytest.approx([700 / 1001, 301 / 1001])
    assert [row["ratio"] for row in rows] == pytest.approx([row["share"] / row["usual"] for row in rows])


def test_without_a_plan_a_step_is_compared_with_those_before_it(tmp_path: Path):
    """First code alone, then prose alone: step 79 is as usual, step 40 is not; the run's mean would blame both."""
    ordered = Plan.make({"code": 640, "prose": 2000}, batch_size=16, shuffle="none")
    with Ledger(tmp_path, names=ordered.names) as ledger:
        for step in range(120):
            ledger.commit(ordered.bill(step))
    run = open_run(tmp_path)

    assert run.explain(40).shares["usual"] == [1.0, 0.0]
    assert run.explain(115).shares["usual"] == [0.0, 1.0]
    assert run.explain(0).shares["usual"] == [None, None]


def test_plan_is_the_one_of_that_step(tmp_path: Path):
    """A run resumed with another plan: each step by the plan that it followed."""
    mark = record(tmp_path, range(10), plan=PLAN)
    mixed = Plan.make({"code": 700, "prose": 301}, batch_size=16, seed=3, mixture=Mixture({"code": 1, "prose": 1}))
    record(tmp_path, range(10, 20), plan=mixed, loaded=mark, allow_changed_plan=True)
    run = open_run(tmp_path)

    assert run.explain(5).shares["usual"] == pytest.approx([700 / 1001, 301 / 1001])
    assert run.explain(15).shares["usual"] == [None, None]
