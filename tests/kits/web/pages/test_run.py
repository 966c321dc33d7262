"""The values of a run's page: every peak is kept, nothing is too much to send."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.report.runs import record

from lading.kits.web.pages.curves import points
from lading.kits.web.pages.run import run_page
from lading.kits.web.pages.sample import sample_page
from lading.kits.web.pages.step import step_page
from lading.kits.web.render.page import page
from lading.order import Mixture, Plan
from lading.report import open_run
from lading.runtime.json import plain

pytestmark = pytest.mark.needs("torch")


def test_thinning_keeps_every_peak():
    """A spike of one step in a million survives, beside NaNs."""
    values = np.ones(1_000_001)
    values[654_321], values[17], values[400_000:410_000] = 9.0, -3.0, np.nan

    places = points(np.arange(len(values)), values)["step"]

    assert len(places) <= 2002
    assert {654_321, 17} <= set(places)
    assert points(np.arange(5), np.ones(5))["step"] == [0, 1, 2, 3, 4]


def test_the_page_of_a_run_is_json_with_stable_keys(rolled_back):
    """What programs poll."""
    page = json.loads(json.dumps(plain(run_page(open_run(rolled_back)))))

    assert sorted(page) == [
        *("attempts", "bad", "bad_count", "blocked", "blocked_count", "changes", "checkpoint_count", "checkpoints"),
        *("damage", "datasets", "digest", "facts", "head", "length", "loss", "mix", "plans", "rollouts"),
        *("skipped", "spike_count", "spike_marks", "spikes", "state", "steps", "strip", "undone"),
    ]
    assert (page["steps"], page["state"], page["spike_count"]) == (130, "ended", 1)
    assert page["spikes"][0]["step"] == 70 and len(page["spikes"][0]["samples"]) == 6
    assert page["undone"][0]["step"] == list(range(60, 100))
    assert sum(cell["last"] - cell["first"] + 1 for cell in page["strip"]) == 130


def test_changes_of_weights_are_on_the_page(tmp_path):
    """A planned stage that the run has reached, not one that is to come."""
    mixture = Mixture(schedule=[(0, {"a": 1, "b": 1}), (10, {"a": 3, "b": 1}), (5000, {"a": 1, "b": 2})])
    record(tmp_path, range(20), plan=Plan.make({"a": 500, "b": 500}, batch_size=16, mixture=mixture))

    changes = run_page(open_run(tmp_path))["changes"]

    assert [change["what"] for change in changes] == ["planned"]
    assert changes[0]["step"] == 10


def test_shares_of_tokens_are_on_the_page_where_the_weights_are(tmp_path):
    """Bars, chart and plan are of tokens; the share of samples stands beside them."""
    mixture = Mixture({"a": 1, "b": 1}, unit="tokens", mean_tokens={"a": 10.0, "b": 30.0})
    record(tmp_path, range(40), plan=Plan.make({"a": 500, "b": 500}, batch_size=16, mixture=mixture))
    run = open_run(tmp_path)

    found = run_page(run)

    assert found["mix"]["unit"] == "tokens"
    assert [np.mean(d["share"]) for d in found["mix"]["datasets"]] == pytest.approx([0.5, 0.5], abs=0.02)
    text = page(run)
    assert "Shares of tokens along the run" in text and "<th>of samples</th><th>of tokens</th>" in text
    assert "<td>75" in text and "<td>50" in text


def test_a_spike_names_datasets_only_that_it_has_more_of_than_usual(rolled_back):
    """Datasets with their usual share, or less, are no hint."""
    (spike,) = run_page(open_run(rolled_back))["spikes"]

    assert all(found["share"] > found["usual"] for found in spike["outstanding"])
    assert len(spike["outstanding"]) < 2  # of two datasets one at most


def test_a_spike_in_a_schedule_names_samples_and_no_dataset(tmp_path):
    """The plan of that step asks for 90 % of it: the mean of the run is no measure."""
    mixture = Mixture(schedule=[(0, {"a": 1, "b": 9}), (40, {"a": 9, "b": 1})])
    record(tmp_path, range(80), plan=Plan.make({"a": 100, "b": 500}, batch_size=20, mixture=mixture))

    (spike,) = run_page(open_run(tmp_path))["spikes"]

    assert (spike["step"], spike["outstanding"]) == (70, [])
    assert "before" in spike["samples"][0]["stands_out"]
    written = page(open_run(tmp_path))
    assert "more of it than" not in written and spike["samples"][0]["stands_out"] in written


def test_blocked_samples_are_on_the_pages(tmp_path):
    """Of the run, and of the sample itself, with the reason; no step is named as the next that uses it."""
    record(tmp_path, range(10))
    open_run(tmp_path).block("step:3", reason="broken markup")
    run = open_run(tmp_path)
    held = run.step(3).samples.dicts()

    assert run_page(run)["blocked_count"] == 16 and "broken markup" in page(run)
    assert sample_page(run, held[0]["name"], held[0]["index"])["blocked"].endswith("next attempt on: broken markup")
    assert {row["next_step"] for row in step_page(run, 3)["samples"]} == {None}


def test_samples_of_several_steps_are_those_of_each(rolled_back):
    """Asked for at once, or step by step."""
    run = open_run(rolled_back)

    found = run.samples_of([3, 70])

    for step, rows in found.items():
        alone = run.step(step).samples.dicts()
        assert [(r["slot"], r["rank"], r["name"], r["index"]) for r in rows] == [
            (r["slot"], r["rank"], r["name"], r["index"]) for r in alone
        ]
