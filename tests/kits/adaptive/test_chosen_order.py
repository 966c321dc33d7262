"""Chunks that are chosen: each once a pass, both directions, past and decided future, one bit a chunk in a state."""

from __future__ import annotations

import json
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import PlanError
from lading.kits.adaptive.chosen import Choose, ChosenChunks
from lading.order.adaptation import resizing
from lading.order.event import event_from_dict, event_to_dict
from lading.order.plan import Plan


def make(lengths=(50, 33), batch=4, chunk=3, **fields) -> Plan:
    """Return a plan whose chunks are chosen."""
    named = {f"d{i}": n for i, n in enumerate(lengths)}
    return Plan.make(named, batch, chunk_batches=chunk, adaptation=ChosenChunks(), **fields)


def chosen(plan: Plan, rng: random.Random, until: int) -> Plan:
    """Return the plan after random choices up to a step."""
    while (step := plan.undecided_from(plan.first_step)) is not None and step < until:
        left = plan.order.remaining(plan.locate(step).epoch)
        plan = plan.with_event(Choose(step, rng.choice(left)))
    return plan


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=3),
    st.integers(1, 7),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(["full", "none"]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60)
def test_passes_are_complete_and_where_inverts_bill(lengths, batch, chunk, drop_last, shuffle, rng):
    """Whatever is chosen: every sample once a pass (tails dropped as ever), and exactly where the bills have it."""
    total = sum(lengths)
    drop_last = drop_last and batch <= total
    plan = make(tuple(lengths), batch, chunk, drop_last=drop_last, shuffle=shuffle, seed=rng.randrange(99))
    plan = chosen(plan, rng, plan.epoch_start(2))
    steps = plan.epoch_start(2)
    bills = [plan.bill(step) for step in range(steps)]

    for epoch in (0, 1):
        samples = [s for b in bills if b.epoch == epoch for s in b.samples]
        assert len(set(samples)) == len(samples) == (total // batch * batch if drop_last else total)
    for d, length in enumerate(lengths):
        for index in range(length):
            scan = [(b.step, int(s)) for b in bills for s in np.flatnonzero((b.dataset_idx == d) & (b.idx == index))]
            assert [(p.step, p.slot) for p in plan.where(d, index, 0, steps)] == scan
    for step in range(0, steps, 3):
        drawn = [b.dataset_idx for b in bills[:step]]
        if not drop_last or step < plan.epoch_start(1):
            assert (
                plan.counts(step)
                == np.bincount(np.concatenate([[], *drawn]).astype(int), minlength=len(lengths)).tolist()
            )


def test_a_pass_without_a_whole_chunk_hides_no_later_one():
    """Sizes become smaller between two passes: what is to be chosen then is known before."""
    plan = Plan.make(40, 4, chunk_batches=30, adaptation=ChosenChunks())
    assert plan.undecided_from(0) is None
    assert plan.with_event(resizing(plan, 10, 3)).undecided_from(0) == 10


def test_a_chunk_is_shuffled_anew_in_every_pass():
    """The same chunk, the same samples, another order."""
    plan = Plan.make(40, 4, chunk_batches=5, adaptation=ChosenChunks())
    for step in (0, 5, 10, 15):
        plan = plan.with_event(Choose(step, step // 5 % 2))
    passes = [[int(i) for step in range(first, first + 5) for i in plan.bill(step).idx] for first in (0, 10)]

    assert sorted(passes[0]) == sorted(passes[1]) == list(range(20)) and passes[0] != passes[1]


def test_the_future_is_known_as_far_as_it_is_decided():
    """Undecided steps have no bill, `where` leaves them out, and a later choice changes nothing decided."""
    plan = make()
    with pytest.raises(PlanError, match=r"chunk 0 of pass 0 is not chosen yet"):
        plan.bill(0)
    plan = plan.with_event(Choose(0, 2)).with_event(Choose(3, 5))
    known = [plan.bill(step).digest for step in range(6)]

    assert plan.undecided_from(0) == plan.undecided_from(4) == 6
    assert {s.index for step in range(3) for s in plan.bill(step).samples} == set(range(24, 36))
    assert plan.where("d0", 30) and not plan.where("d0", 0), "chunk 0 is not chosen yet"
    later = plan.with_event(Choose(6, 0))
    assert [later.bill(step).digest for step in range(6)] == known and later.where("d0", 0)
    for bad, message in ((Choose(9, 2), "chosen already"), (Choose(7, 1), "fits no chunk"), (Choose(9, 77), "fits no")):
        with pytest.raises(PlanError, match=message):
            later.with_event(bad)
    assert [b.undecided_from(0) for b in (Plan.from_json(later.to_json()), pickle.loads(pickle.dumps(later)))] == [9, 9]


@given(st.integers(0, 40), st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_a_state_keeps_one_bit_a_chunk(stop, rng):
    """Resumed anywhere: the same future bills, the same chunks left, and no list of what was chosen."""
    plan = chosen(make(), rng, stop + 1)

    text = json.dumps([event_to_dict(e) for e in plan.events_from(stop)])
    resumed = plan.with_events([event_from_dict(e) for e in json.loads(text)])

    assert [resumed.bill(s).digest for s in range(stop, resumed.undecided_from(stop))] == [
        plan.bill(s).digest for s in range(stop, plan.undecided_from(stop))
    ]
    assert resumed.undecided_from(stop) == plan.undecided_from(stop)
    at = plan.locate(plan.undecided_from(stop))
    assert resumed.order.remaining(at.epoch) == plan.order.remaining(at.epoch)
    more = random.Random(1)
    ends = [chosen(p, random.Random(3), 60) for p in (plan, resumed)]
    assert [ends[0].bill(s).digest for s in range(stop, 60)] == [ends[1].bill(s).digest for s in range(stop, 60)]
    again = [event_to_dict(e) for e in ends[1].events_from(50 + more.randrange(9))]
    assert len(json.dumps(again)) < 600


def test_ten_thousand_chunks_are_ten_thousand_bits():
    """In base64: a third more than the bits themselves."""
    plan = make((10_000,), 1, 1)
    plan = plan.with_events([Choose(step, (step * 7919) % 10_000) for step in range(9_000)])

    text = json.dumps([event_to_dict(e) for e in plan.events_from(8_999)])

    assert len(text) <= 10_000 / 8 * 4 / 3 + 300


def test_what_does_not_go_together_is_refused():
    """Weights, ramps and planned sizes; sizes change between passes."""
    for fields in ({"batch_schedule": ((0, 4), (5, 8))}, {"chunk_schedule": ((0, 3), (2, 6))}):
        with pytest.raises(PlanError, match="chunks are chosen and"):
            replace(make(), **fields)
    with pytest.raises(PlanError, match="chunk_batches is missing"):
        Plan.make({"a": 9}, 2, adaptation=ChosenChunks())
    plan = chosen(make(), random.Random(0), 10)
    with pytest.raises(PlanError, match="sizes change between passes"):
        resizing(plan, 9, 5)
    border = plan.epoch_start(1)
    plan = chosen(plan, random.Random(0), border)
    after = chosen(plan.with_event(resizing(plan, border, 5, "grown")), random.Random(2), plan.epoch_start(2))
    samples = [s for step in range(border, after.epoch_start(2)) for s in after.bill(step).samples]
    assert len(samples) == len(set(samples)) == 83 and after.chunk_steps(after.locate(border).chunk) == 5
