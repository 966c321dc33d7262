"""Curricula: easy samples first, a pool that grows, both directions, on any batch size, with scores that change."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import PlanError
from lading.kits.adaptive.curriculum import Curriculum, joined
from lading.kits.adaptive.graded import GradedSamples
from lading.kits.adaptive.levels import MAX_LEVELS, CurriculumSpec, Levels
from lading.order.event import Rebatch, event_from_dict, event_to_dict
from lading.order.plan import Plan

PACINGS = st.sampled_from(["linear", "root", [(0, 0.1), (4, 0.5), (9, 1.0)]])


def make(lengths=(30, 17), batch=4, seed=0, scores=None, **asked) -> Plan:
    """Return a plan with a curriculum; without scores: random ones."""
    total = sum(lengths)
    scores = np.random.default_rng(seed).random(total) if scores is None else scores
    asked = {"until": 12, "start": 0.2, **asked}
    fields = {name: asked.pop(name) for name in ("shuffle", "drop_last", "chunk_batches") if name in asked}
    spec = Curriculum([], **asked).planned(np.asarray(scores), batch, fields.get("drop_last", False))
    return Plan.make(
        {f"d{i}": n for i, n in enumerate(lengths)}, batch, seed=seed, adaptation=GradedSamples(spec), **fields
    )


def flat(plan: Plan, step: int) -> np.ndarray:
    """Return the samples of a step, counted over all sources."""
    bill = plan.bill(step)
    starts = np.concatenate([[0], np.cumsum(plan.lengths)])
    return starts[bill.dataset_idx] + bill.idx


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(0, 99),
    PACINGS,
    st.sampled_from(["full", "window", "none"]),
    st.booleans(),
)
@settings(max_examples=15)
def test_where_inverts_bill_and_the_pool_grows(lengths, batch, seed, pacing, shuffle, drop_last):
    """Law 5 by a full scan; nothing harder than the pool; every pass over everything is complete, once all is in."""
    total = sum(lengths)
    if drop_last and batch > total:
        batch = total
    scores = np.random.default_rng(seed).integers(0, 6, total).astype(float)
    plan = make(tuple(lengths), batch, seed, scores, pacing=pacing, shuffle=shuffle, drop_last=drop_last)
    steps = 40
    bills = [plan.bill(step) for step in range(steps)]

    order = np.argsort(scores, kind="stable")
    ranks = np.empty(total, dtype=int)
    ranks[order] = np.arange(total)
    for step, bill in enumerate(bills):
        assert max(ranks[flat(plan, step)]) < plan.order.pool_at(bill.position)
    for d, length in enumerate(lengths):
        for index in range(0, length, 3):
            scan = [(b.step, int(s)) for b in bills for s in np.flatnonzero((b.dataset_idx == d) & (b.idx == index))]
            assert [(p.step, p.slot) for p in plan.where(d, index, 0, steps)] == scan
    assert (
        plan.counts(steps)
        == np.bincount(np.concatenate([b.dataset_idx for b in bills]), minlength=len(lengths)).tolist()
    )
    seen = np.unique(np.concatenate([flat(plan, s) for s in range(steps)]))
    assert sum(plan.simulate(steps).coverage[f"d{d}"] * n for d, n in enumerate(lengths)) == pytest.approx(len(seen))
    whole = plan.adaptation.spec.stages[-1][0]
    drawn = np.concatenate([flat(plan, s) for s in range(steps)])[whole:]
    for begin in range(0, len(drawn) - total + 1, total):
        assert sorted(drawn[begin : begin + total]) == list(range(total))


@given(st.integers(0, 99), PACINGS)
@settings(max_examples=20)
def test_while_it_grows_levels_come_evenly_pass_by_pass(seed, pacing):
    """Each level is less than 5 draws from its share of the pool at every step end, no sample twice in a pass."""
    plan = make((200, 100), 8, seed, pacing=pacing, until=30)
    levels, drawn, planned = plan.adaptation.spec.levels, np.zeros(0), 0
    counts = np.zeros(len(levels.sizes))
    for step in range(plan.clock.step_from(plan.adaptation.spec.stages[-1][0])):
        mine = levels.numbers[flat(plan, step)]
        pool = [k for start, k in plan.adaptation.spec.stages if start <= plan.locate(step).position][-1]
        share = np.where(np.arange(len(counts)) < pool, levels.sizes, 0)
        counts, planned = counts + np.bincount(mine, minlength=len(counts)), planned + share / share.sum() * len(mine)
        drawn = np.append(drawn, flat(plan, step))
        assert np.abs(counts - planned).max() < 5
    for k in range(len(counts)):
        mine = drawn[levels.numbers[drawn.astype(int)] == k]
        for begin in range(0, len(mine), int(levels.sizes[k])):
            part = mine[begin : begin + int(levels.sizes[k])]
            assert len(np.unique(part)) == len(part)


def test_another_batch_size_moves_no_sample():
    """After a rebatch the samples come in the same order, cut otherwise; where inverts bill all the same."""
    plan = make((50, 20), 4)
    at = plan.locate(7)
    after = plan.with_event(Rebatch(7, at.epoch, at.offset, 6))

    drawn = [np.concatenate([flat(p, step) for step in range(30)])[:100] for p in (plan, after)]

    np.testing.assert_array_equal(*drawn)
    for step in range(25):
        for slot, (d, i) in enumerate(after.bill(step).samples):
            assert (step, slot) in [(p.step, p.slot) for p in after.where(d, i, 0, 30)]


def test_new_scores_act_at_an_epoch_border_and_are_kept_by_name():
    """Nothing before it moves; a state has their SHA-256, a plan's JSON the levels; unchanged scores are no event."""
    plan = make((40, 20), 6, until=25)
    new = Levels.of(-np.arange(60.0), plan.adaptation.spec.levels.sizes.tolist())
    border = plan.epoch_start(1)

    after = plan.with_event(plan.adaptation.rescoring(plan, border, new, "measured again"))

    assert [after.bill(s).digest for s in range(border)] == [plan.bill(s).digest for s in range(border)]
    assert [after.bill(s).digest for s in range(border, 40)] != [plan.bill(s).digest for s in range(border, 40)]
    assert after.adaptation.rescoring(after, plan.epoch_start(2), new) is None
    with pytest.raises(PlanError, match=r"step 3 is inside epoch 0: scores change where an epoch begins"):
        plan.adaptation.rescoring(plan, 3, new)
    again = Plan.from_json(after.to_json())
    assert [again.bill(s).digest for s in range(60)] == [after.bill(s).digest for s in range(60)]
    short = [event_from_dict(json.loads(json.dumps(event_to_dict(e)))) for e in after.events_from(border + 3)]
    assert len(json.dumps([event_to_dict(e) for e in short])) < 400
    with pytest.raises(PlanError, match=r"SHA-256 \w{16}\.\.\., which are not here.*Curriculum\(scores, later="):
        plan.with_events(short).bill(border + 3)
    for p in (after.with_events(after.events_from(border + 3)), pickle.loads(pickle.dumps(after))):
        assert [p.bill(s).digest for s in range(border + 3, 60)] == [
            after.bill(s).digest for s in range(border + 3, 60)
        ]
        for slot, (d, i) in enumerate(p.bill(border + 5).samples):
            assert (border + 5, slot) in [(q.step, q.slot) for q in p.where(d, i, border, 60)]


def test_new_scores_begin_passes_of_their_own():
    """Once everything is in the levels do not matter: each pass after new scores is shuffled anew."""
    plan = make((40, 20), 6, until=5)
    old, new = plan.adaptation.spec.levels, Levels.of(-np.arange(60.0), plan.adaptation.spec.levels.sizes.tolist())
    for step, levels in ((10, new), (20, old)):
        plan = plan.with_event(plan.adaptation.rescoring(plan, step, levels))
    first, second = ([s for step in range(a, a + 10) for s in plan.bill(step).samples] for a in (10, 20))

    assert sorted(first) == sorted(second) and first != second


def test_scores_are_in_the_fingerprint():
    """Another difficulty is another plan, named as such; the same difficulty under other numbers is the same."""
    scores = np.arange(47.0)

    plans = [make(scores=s) for s in (scores, scores * 3 + 1, scores[::-1])]

    assert plans[0].fingerprint == plans[1].fingerprint != plans[2].fingerprint
    assert "scores or pace of the curriculum" in plans[0].differences(plans[2])[0]


@pytest.mark.parametrize("pacing", ["linear", "root"])
def test_paces_have_their_formula(pacing):
    """At most 64 stages; each share is that of the formula at its step."""
    asked = Curriculum([], start=0.1, until=1000, pacing=pacing, power=3)
    spec = asked.planned(np.arange(5000.0), batch=5)

    assert len(spec.stages) <= MAX_LEVELS and spec.stages[-1][0] == 5000
    for position, pool in spec.stages:
        part = position / 5000
        share = 0.1 + 0.9 * part if pacing == "linear" else (0.001 + 0.999 * part) ** (1 / 3)
        assert spec.levels.starts[pool] == pytest.approx(5000 * share, abs=1)


def test_nonsense_is_refused_by_name():
    """Settings, scores, stages and damaged JSON."""
    for bad in ({"start": 0}, {"pacing": "fast"}, {"power": 0}, {"pacing": 3}):
        with pytest.raises(PlanError, match="curriculum with start"):
            Curriculum([], **bad)
    for pacing in ([(0, 0.5)], [(1, 1.0)], [(0, 0.5), (3, 0.4)], [5], [(0, 0), (1, 1)]):
        with pytest.raises(PlanError, match="pacing"):
            make(pacing=pacing)
    with pytest.raises(PlanError, match=r"'b': expected 3 finite numbers, one for each sample, found shape \(2,\)"):
        joined({"a": [1], "b": [1, 2]}, {"a": 1, "b": 3})
    with pytest.raises(PlanError, match="that of sample 0 is nan"):
        joined({"a": [np.nan]}, {"a": 1})
    with pytest.raises(PlanError, match="both rising"):
        CurriculumSpec(Levels(np.zeros(3, np.uint8)), ((0, 2), (5, 1)))
    text = make().to_json()
    for damage in ('"zlib": "A', '"sha256": "0'):
        with pytest.raises(PlanError, match=r"zlib|sha256"):
            Plan.from_json(text.replace(damage[:-1], damage, 1))
    with pytest.raises(PlanError, match="weights or a curriculum, not both"):
        Plan.make({"a": 47}, 4, adaptation=make().adaptation, mixture=__import__("lading").Mixture([1]))


def test_few_samples_and_one_level_work():
    """A pool that is everything from the start is pass after pass."""
    plan = make((3,), 2, start=1.0)

    for first in range(0, 12, 3):
        drawn = list(itertools.chain.from_iterable(flat(plan, s) for s in range(20)))
        assert sorted(drawn[first : first + 3]) == [0, 1, 2]
