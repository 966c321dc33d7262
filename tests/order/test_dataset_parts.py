"""Parts of sources: what order, weights and passes count is rows of sources, what is named is samples of datasets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import PlanError
from lading.order import Block, Part, Parts, Plan, PlannedDataset
from lading.order.dataset import MAX_NUMBER
from lading.order.mixture.request import Mixture


def part(number, rows, samples, first=0):
    """Return a part of a source, named by its number."""
    return Part(number, f"[{number}]", rows, samples, first)


def scanned(plan, steps):
    """Return the places of every sample, by looking at every bill."""
    found = {}
    for step in range(steps):
        bill = plan.bill(step)
        for slot, sample in zip(bill.slots.tolist(), bill.samples, strict=True):
            found.setdefault(tuple(sample), []).append((step, slot))
    return found


@st.composite
def sources(draw):
    """Draw sources by name: a length, or parts that repeat their samples or hold only some of them."""
    found = {}
    for source in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            found[f"s{source}"] = draw(st.integers(1, 9))
            continue
        parts = []
        for place in range(draw(st.integers(1, 3))):
            samples, rows = draw(st.integers(1, 5)), draw(st.integers(0, 12))
            number = draw(st.sampled_from([None, 10 * source + place + 5]))
            parts.append(Part(number, f"[{place}]", rows, samples, draw(st.sampled_from([0, 100]))))
        found[f"s{source}"] = [*parts, Part(None, "[last]", 1, 1)]
    return found


@given(sources(), st.integers(1, 5), st.booleans(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_where_is_the_inverse_of_the_bill_over_every_copy(lengths, batch, weighted, seed):
    """Law 5: where names exactly the places that a scan of all bills finds, blocked samples too."""
    plan = Plan.make(lengths, batch, seed=seed)
    if weighted:
        weights = dict(zip(plan.source_names, range(1, 9), strict=False))
        plan = Plan(plan.datasets, batch, seed=seed, mixture=Mixture(weights).planned(plan.datasets, batch))
    steps = plan.epoch_start(2)
    victim = plan.bill(0).samples[0]
    if plan.parts.part(victim.dataset).reach > 1:
        plan = plan.with_event(Block(min(1, steps - 1), victim.dataset, (victim.index,)))

    found = scanned(plan, steps)

    for number in plan.parts.numbers:
        member = plan.parts.part(number)
        for index in range(member.first, member.first + member.samples):
            places = [(p.step, p.slot) for p in plan.where(number, index, 0, steps)]
            assert places == found.get((number, index), [])


@given(sources(), st.integers(1, 5), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_what_is_read_is_what_is_named(lengths, batch, seed):
    """The source and row of each row of a bill belong to its name, blocked samples too."""
    plan = Plan.make(lengths, batch, seed=seed)
    victim = plan.bill(0).samples[0]
    if plan.parts.part(victim.dataset).reach > 1:
        plan = plan.with_event(Block(0, victim.dataset, (victim.index,)))

    for step in range(plan.epoch_steps(0)):
        bill = plan.bill(step)
        datasets, indices = plan.parts.of_rows(bill.source_idx, bill.rows)
        assert datasets.tolist() == bill.dataset_idx.tolist()
        assert indices.tolist() == bill.idx.tolist()


@given(sources(), st.integers(1, 5), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_parts_do_not_change_the_order(lengths, batch, seed):
    """Rows come as they would if no source had parts, with the same shares for ranks."""
    plan = Plan.make(lengths, batch, seed=seed)
    plain = Plan.make(dict(zip(plan.source_names, plan.lengths, strict=True)), batch, seed=seed)

    for step in range(plan.epoch_steps(0)):
        assert plan.bill(step).source_idx.tolist() == plain.bill(step).dataset_idx.tolist()
        assert plan.bill(step).rows.tolist() == plain.bill(step).idx.tolist()


@given(sources(), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_plan_with_parts_survives_json(lengths, batch):
    """Everything about the parts is written down, numbers included."""
    plan = Plan.make(lengths, batch)

    again = Plan.from_json(plan.to_json())

    assert again == plan
    assert again.fingerprint == plan.fingerprint
    assert again.names == plan.names


def test_a_plan_without_parts_says_nothing_of_them():
    """One dataset a source, numbered in order, is what plans have always been."""
    plain = Plan.make({"a": 5, "b": 3}, 2)
    tagged = Plan.make({"a": [Part(0, "", 5, 5)], "b": [Part(1, "", 3, 3)]}, 2)

    assert tagged == plain
    assert tagged.fingerprint == plain.fingerprint
    assert "parts" not in json.loads(plain.to_json())["datasets"][0]
    bill = plain.bill(0)
    assert bill.source_rows is None
    assert bill.rows is bill.idx


def test_given_numbers_are_kept_and_the_others_take_the_lowest_free_ones():
    """A tagged dataset keeps its number wherever it stands."""
    plan = Plan.make(
        {"a": 4, "b": [Part(1, "", 2, 2)], "c": 3, "d": [Part(None, "[0]", 1, 1), Part(7, "[1]", 1, 1)]}, 2
    )

    assert plan.names == ("a", "b", "c", "d[0]", "", "", "", "d[1]")
    assert plan.source_names == ("a", "b", "c", "d")
    assert plan.parts.numbers == [0, 1, 2, 3, 7]


def test_a_source_repeats_samples_under_their_own_names():
    """Row r of a part is sample r mod samples, from the first on."""
    parts = Parts(Plan.make({"d": [part(0, 5, 3), part(1, 2, 2, first=10)]}, 2).datasets)

    datasets, indices = parts.of_rows(np.zeros(7, np.int32), np.arange(7))

    assert datasets.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert indices.tolist() == [0, 1, 2, 0, 1, 10, 11]
    assert parts.rows_of(0, 1)[1].tolist() == [1, 4]
    assert parts.rows_of(0, 2)[1].tolist() == [2]
    assert parts.rows_of(1, 11)[1].tolist() == [6]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ({"a": [Part(3, "", 4, 4)], "b": [Part(3, "", 2, 2)]}, "'a' and 'b' both have the number 3.*dataset_idx="),
        ({"a": [part(0, 4, 4), Part(0, "[x]", 4, 4)]}, "both have the number 0"),
        ({"a": [Part(-1, "", 4, 4)]}, "has the number -1: expected 0 to"),
        ({"a": [Part(MAX_NUMBER + 1, "", 4, 4)]}, "expected 0 to 65535"),
        ({"a": [Part(None, "", 4, 0)]}, "4 rows of 0 samples"),
        ({"a": [Part(None, "[0]", 1, 1)], "a[0]": 4}, "different names"),
    ],
)
def test_parts_that_cannot_be_told_apart_are_refused(lengths, message):
    """Two datasets under one number or name would share their samples' names."""
    with pytest.raises(PlanError, match=message):
        Plan.make(lengths, 2)


def test_parts_cover_their_source():
    """Rows that belong to no dataset would have no name."""
    with pytest.raises(PlanError, match="have 3 rows together, it has 5"):
        Plan((PlannedDataset("a", 5, parts=(Part(0, "a", 3, 3),)),), 2)


def test_datasets_are_asked_for_by_the_names_of_parts():
    """A source with several parts is no dataset; the error names those it has."""
    plan = Plan.make({"d": [part(0, 4, 2), part(5, 1, 1)]}, 2)

    assert plan.number_of("d[5]") == 5
    with pytest.raises(PlanError, match=r"no dataset 'd' in the plan: it has 'd\[0\]', 'd\[5\]' in the source"):
        plan.where("d", 0)
    with pytest.raises(PlanError, match="no dataset number 1 in the plan: it has 0, 5"):
        plan.number_of(1)
    with pytest.raises(PlanError, match=r"'d\[0\]' has no sample 2: expected 0 to 1"):
        plan.where(0, 2)


def test_changed_parts_are_a_difference():
    """A resume under other numbers is refused: names would change their meaning."""
    old = Plan.make({"d": [part(0, 4, 2), part(5, 1, 1)]}, 2)
    new = Plan.make({"d": [part(0, 4, 4), part(5, 1, 1)]}, 2)

    assert old.differences(new) == ["dataset 'd' has other parts, or other numbers for them"]


def test_the_tail_is_named_by_datasets():
    """What drop_last leaves out is named as bills name it."""
    plan = Plan.make({"d": [part(3, 4, 2), part(5, 1, 1)]}, 2, drop_last=True, shuffle="none")

    assert plan.simulate().tail == ((5, 0),)
