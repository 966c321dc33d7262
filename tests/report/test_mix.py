"""What the model got, against the weights planned for each of its steps."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cli.calling import call

from lading import Ledger, open_run
from lading.order import Plan, integer_weights
from lading.order.mixture.request import Mixture


def train(path, plan, steps):
    """Record some steps; the event of the plan is noticed before its step."""
    with Ledger(path, plan.with_events(())) as ledger:
        for step in steps:
            for event in plan.events:
                if event.step == step:
                    ledger.event(event)
            ledger.commit(plan.bill(step), loss=1.0)


def test_a_schedule_is_compared_with_the_weights_of_each_step(tmp_path):
    """10 steps of 9:1, 20 of 1:1, 10 of 1:9 by hand: the run is planned at what they add up to, not at the last."""
    mixture = Mixture(schedule=[(0, [9, 1]), ("10ba", [1, 1])])
    plan = Plan.make({"a": 500, "b": 500}, 20, mixture=mixture)
    plan = plan.with_event(plan.reweighting(30, integer_weights([1, 9]), "by hand"))
    train(tmp_path, plan, range(40))

    run = open_run(tmp_path)

    whole = {row["dataset"]: row for row in run.mix()}
    assert whole["a"]["planned"] == pytest.approx((10 * 0.9 + 20 * 0.5 + 10 * 0.1) / 40)
    assert abs(whole["a"]["samples"] - whole["a"]["planned"] * 800) < 5
    parts = [row["planned"] for row in run.mix(10) if row["dataset"] == "a"]
    assert parts == pytest.approx([0.9, 0.5, 0.5, 0.1])
    for row in run.mix(10):
        assert abs(row["share"] - row["planned"]) * 200 < 5


def test_without_weights_the_lengths_are_the_plan(tmp_path):
    """Shares of the lengths, whatever part of an epoch was used."""
    plan = Plan.make({"a": 90, "b": 10}, 10)
    train(tmp_path, plan, range(4))

    assert [row["planned"] for row in open_run(tmp_path).mix()] == pytest.approx([0.9, 0.1])


def test_a_ramp_weighs_steps_by_their_size(tmp_path):
    """A large step counts for more than a small one."""
    mixture = Mixture(schedule=[(0, [1, 0]), ("4ba", [0, 1])])
    plan = Plan.make({"a": 500, "b": 500}, batch_schedule=[(0, 10), (4, 40)], mixture=mixture)
    train(tmp_path, plan, range(8))

    planned = [row["planned"] for row in open_run(tmp_path).mix()]

    assert planned == pytest.approx([40 / 200, 160 / 200])
    assert np.sum(planned) == pytest.approx(1)


def test_weights_of_tokens_are_compared_with_shares_of_tokens(tmp_path, capsys):
    """50 to 30 to 20 of the tokens is 29 to 53 to 18 of the samples: both are said, the plan beside the first."""
    means = {"code": 90.0, "prose": 30.0, "web": 60.0}
    mixture = Mixture({"code": 0.5, "prose": 0.3, "web": 0.2}, unit="tokens", mean_tokens=means)
    train(tmp_path, Plan.make({"code": 300, "prose": 200, "web": 500}, 16, mixture=mixture), range(60))

    rows = open_run(tmp_path).mix().dicts()
    _, mixed, _ = call(capsys, "mix", tmp_path)
    _, shown, _ = call(capsys, "show", tmp_path)

    assert [row["token_planned"] for row in rows] == pytest.approx([0.5, 0.3, 0.2])
    assert [row["token_share"] for row in rows] == pytest.approx([0.5, 0.3, 0.2], abs=0.005)
    assert [row["tokens"] for row in rows] == [row["samples"] * means[row["dataset"]] for row in rows]
    assert [row["share"] for row in rows] == pytest.approx([0.294, 0.529, 0.176], abs=0.01)
    for text in (mixed, shown):
        assert "of samples   of tokens   planned" in text and "50.00%" in text


def test_weights_of_samples_say_nothing_of_tokens(tmp_path, capsys):
    """Shares are of samples, as they were."""
    train(tmp_path, Plan.make({"a": 90, "b": 10}, 10, mixture=Mixture([1, 1])), range(4))

    assert open_run(tmp_path).mix()["token_share"] == [None, None]
    assert "tokens" not in call(capsys, "mix", tmp_path)[1]
