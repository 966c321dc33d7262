"""A run whose sources have parts: every answer speaks of datasets, by number and by name."""

from __future__ import annotations

from collections import Counter

import pytest

from lading import Ledger, open_run
from lading.errors import ConfigError
from lading.order import Part, Plan
from lading.order.mixture.request import Mixture

# Source "data": dataset 0 twice and its head, half of dataset 5; source "more": a dataset of its own.
LENGTHS = {"data": [Part(0, "[0]", 10, 4), Part(5, "[5]", 6, 12)], "more": 8}


def plan_of(weighted):
    """Return a plan over two sources with three datasets."""
    plan = Plan.make(LENGTHS, 5, seed=3)
    if not weighted:
        return plan
    spec = Mixture({"data": 3, "more": 1}).planned(plan.datasets, 5)
    return Plan(plan.datasets, 5, seed=3, mixture=spec)


def train(path, plan, steps, skip=()):
    """Record some steps."""
    with Ledger(path, plan) as ledger:
        for step in range(steps):
            bill = plan.bill(step)
            ledger.deliver(bill)
            if step in skip:
                ledger.skip(bill, "overflow")
            else:
                ledger.commit(bill, update=step, loss=1.0 + step)


def used(plan, steps, skip=()):
    """Return how often each sample was used, by looking at every bill."""
    return Counter(sample for step in range(steps) if step not in skip for sample in plan.bill(step).samples)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("skip", [(), (3,)])
def test_mix_and_passes_count_datasets(tmp_path, weighted, skip):
    """Samples, passes and coverage of each dataset are those of the bills."""
    plan = plan_of(weighted)
    train(tmp_path, plan, 11, skip)
    counts = used(plan, 11, skip)

    run = open_run(tmp_path)

    assert run.named_datasets == [(0, "data[0]"), (1, "more"), (5, "data[5]")]
    assert run.verify().holds
    samples = {name: sum(n for s, n in counts.items() if s.dataset == d) for d, name in run.named_datasets}
    assert {row["dataset"]: row["samples"] for row in run.mix()} == samples
    rows = {row["dataset"]: row for row in run.passes()}
    for number, name in run.named_datasets:
        length = {0: 4, 1: 8, 5: 12}[number]
        assert rows[name]["length"] == length
        assert rows[name]["passes"] == samples[name] / length
        assert rows[name]["distinct"] == sum(s.dataset == number for s in counts)


@pytest.mark.parametrize("weighted", [False, True])
def test_planned_shares_are_those_of_the_sources_cut_by_rows(tmp_path, weighted):
    """Weights are of sources; a dataset has its rows' part of them."""
    train(tmp_path, plan_of(weighted), 4)

    planned = {row["dataset"]: row["planned"] for row in open_run(tmp_path).mix()}

    data, more = (0.75, 0.25) if weighted else (16 / 24, 8 / 24)
    expected = {"data[0]": data * 10 / 16, "data[5]": data * 6 / 16, "more": more}
    assert planned == pytest.approx(expected, abs=1e-6)


def test_where_and_step_name_datasets(tmp_path):
    """Every copy of a sample is found, by name and by number, and steps list the names."""
    plan = plan_of(weighted=False)
    train(tmp_path, plan, 10)
    run = open_run(tmp_path)

    for (dataset, index), times in used(plan, 10).items():
        places = run.where(run.datasets[dataset], index)
        assert len(places) == len(run.where(dataset, index)) == times
    step = run.step(2)
    assert [(row["dataset"], row["index"]) for row in step.samples] == plan.bill(2).samples
    assert {row["name"] for row in step.samples} <= {"data[0]", "more", "data[5]"}
    assert step.matches
    with pytest.raises(ConfigError, match=r"no dataset 'data' in this run: it has 'data\[0\]', 'more', 'data\[5\]'"):
        run.where("data", 0)
    with pytest.raises(ConfigError, match="no dataset 2 in this run: it has 0, 1, 5"):
        run.where(2, 0)


def test_sql_losses_and_explanations_name_datasets(tmp_path):
    """The samples view, losses by dataset and an explanation leave unused numbers out."""
    train(tmp_path, plan_of(weighted=False), 10)
    run = open_run(tmp_path)

    names = set(run.sql("SELECT DISTINCT dataset, name FROM samples").dicts()[0])
    pairs = {(row["dataset"], row["name"]) for row in run.sql("SELECT DISTINCT dataset, name FROM samples")}

    assert names == {"dataset", "name"}
    assert pairs == {(0, "data[0]"), (1, "more"), (5, "data[5]")}
    assert {row["dataset"] for row in run.losses(by="dataset")} == {"data[0]", "more", "data[5]"}
    assert [row["dataset"] for row in run.explain(4).shares] == ["data[0]", "more", "data[5]"]


def test_a_blocked_sample_is_gone_in_every_copy(tmp_path):
    """A block by hand acts on the dataset's sample, not on one row of the source."""
    plan = plan_of(weighted=False)
    train(tmp_path, plan, 2)
    open_run(tmp_path).block("data[0]:1")

    with Ledger(tmp_path, plan) as ledger:
        followed = ledger.begin(2, plan) or plan
        for step in range(2, 10):
            ledger.deliver(followed.bill(step))
            ledger.commit(followed.bill(step))

    assert (0, 1) not in {tuple(s) for step in range(2, 10) for s in followed.bill(step).samples}
    assert open_run(tmp_path).verify().holds
    with pytest.raises(ConfigError, match=r"'data\[5\]' has samples 0 to 11"):
        open_run(tmp_path).block("data[5]:12")


def test_a_run_without_a_plan_keeps_sparse_numbers(tmp_path):
    """Names observed under the number 5 alone are listed alone."""
    plan = Plan.make({"only": [Part(5, "", 6, 6)]}, 3)
    with Ledger(tmp_path, names=plan.names) as ledger:
        for step in range(2):
            ledger.deliver(plan.bill(step))
            ledger.commit(plan.bill(step))

    run = open_run(tmp_path)

    assert [(row["dataset"], row["samples"]) for row in run.mix()] == [("only", 6)]
    assert len(run.where("only", 2)) == 1
    assert {row["name"] for row in run.step(0).samples} == {"only"}
