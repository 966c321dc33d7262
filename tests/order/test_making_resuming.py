"""What a plan keeps of its past: small, exact from its first step on, and read back field by field."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from lading.errors import PlanError
from lading.order.event import Block, Mask, Rebatch, ResumeBase, Reweight, event_from_dict, event_to_dict
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import integer_weights
from lading.order.plan import Plan

LENGTHS = {"a": 40, "b": 7, "c": 1000}


def planned(kind: str, **fields) -> Plan:
    """Return a plan of three datasets: weighted with a schedule, ending by itself, or without weights."""
    schedule = [(0, [1, 1, 1]), ("9ba", [5, 1, 1]), ("31ba", [1, 1, 8])]
    mixtures = {
        "restart": Mixture(schedule=schedule, epoch_samples=130),
        "first_exhausted": Mixture(weights=[5, 1, 100], stopping="first_exhausted"),
        "unweighted": None,
    }
    size = None if "batch_schedule" in fields else 10
    return Plan.make(LENGTHS, size, seed=3, mixture=mixtures[kind], **fields)


def changed(plan: Plan, draw, steps: int) -> Plan:
    """Return a plan after some events."""
    for step in sorted(draw(st.sets(st.integers(1, steps), max_size=5))):
        kind = draw(st.sampled_from(["reweight", "rebatch", "block"]))
        at = plan.locate(step)
        if kind == "reweight" and plan.clock.gapless:
            weights = draw(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any))
            event = plan.reweighting(step + draw(st.integers(0, 4)), integer_weights(weights), "why")
            plan = plan if event is None else plan.with_event(event)
        elif kind == "rebatch":
            size = draw(st.integers(1, 13))
            chunk = None if plan.chunk_batches is None else draw(st.integers(1, 4))
            plan = plan.with_event(Rebatch(step, at.epoch, at.offset, size, chunk, at_later(plan, step)))
        else:
            plan = plan.with_event(Block(step, draw(st.integers(0, 2)), (draw(st.integers(0, 6)),), "bad"))
    return plan


def at_later(plan: Plan, step: int) -> tuple[tuple[int, int], ...]:
    """Return what a batch schedule still plans after a step."""
    return tuple(point for point in plan.clock.pace_at(step).later if point[0] > step)


@given(
    st.sampled_from(["restart", "first_exhausted", "unweighted"]),
    st.booleans(),
    st.sampled_from([None, 3]),
    st.data(),
)
def test_a_resumed_plan_needs_no_past(kind, drop_last, chunk_batches, data):
    """From its first step on: the same bills, places, chunks and counts, whatever had happened; again and again."""
    ramp = {"batch_schedule": ((0, 10), (12, 6), (44, 15))} if data.draw(st.booleans()) else {}
    plan = changed(planned(kind, drop_last=drop_last, chunk_batches=chunk_batches, **ramp), data.draw, 40)
    step = data.draw(st.integers(0, 60))

    events = [event_from_dict(json.loads(json.dumps(event_to_dict(e)))) for e in plan.events_from(step)]
    resumed = plan.with_events(events)
    resumed = resumed.with_events(resumed.events_from(step + data.draw(st.integers(0, 5))))

    first = resumed.first_step
    assert first <= step + 5 and sum(isinstance(e, ResumeBase) for e in resumed.events) <= 1
    assert resumed.fingerprint == plan.fingerprint
    for s in range(first, step + 40):
        ours, theirs = resumed.bill(s), plan.bill(s)
        assert resumed.locate(s) == plan.locate(s)
        assert (ours.digest, ours.samples, ours.batch_id) == (theirs.digest, theirs.samples, theirs.batch_id)
        if plan.clock.gapless:
            assert resumed.counts(s) == plan.counts(s)
    for dataset, index in ((0, 3), (1, 0), (2, 500)):
        assert resumed.where(dataset, index, first, step + 40) == plan.where(dataset, index, first, step + 40)
    if first:
        with pytest.raises(PlanError, match=rf"step {first - 1} lies before step {first}.*the ledger has the rest"):
            resumed.bill(first - 1)
        with pytest.raises(PlanError, match="the ledger has the rest"):
            resumed.where(0, 0, first - 1, first + 3)


def test_what_resuming_needs_does_not_grow_with_the_past():
    """After 1 500 changes: at most 2 kB, 48 bytes a dataset and 8 bytes a blocked sample."""
    plan = Plan.make({f"d{k}": 10**7 for k in range(20)}, 256, mixture=Mixture(weights=[1] * 20))
    blocked = 0
    for step in range(1500):
        weights = integer_weights([1 + (step * (d + 1)) % 17 for d in range(20)])
        event = plan.reweighting(step + 33, weights, "policy")
        plan = plan if event is None else plan.with_event(event)
        if step % 3 == 0:
            plan = plan.with_event(Block(step, step % 20, (step * 1009 % 10**7,), "unreadable"))
            blocked += 1
        if step % 500 == 0:  # what a long run would do at a checkpoint
            plan = plan.with_events(plan.events_from(step))

    base, *later = plan.events_from(1500)

    size = len(json.dumps(event_to_dict(base), separators=(",", ":")))
    assert size <= 2000 + 48 * 20 + 8 * blocked
    assert len(later) <= 33
    assert sum(len(indices) for _, indices in base.blocked) == blocked


def test_what_is_left_out_is_worked_out_once_whatever_else_changes():
    """Weights that change with every step once looked for the substitute of each blocked sample again."""
    plan = Plan.make(LENGTHS, 10, mixture=Mixture([1, 1, 1], epoch_samples=130)).with_event(Block(2, 1, (3, 5), "bad"))
    plan = plan.with_event(Mask(2, 2, (7,), "bad"))
    event = plan.reweighting(4, integer_weights([1, 2, 3]), "why")
    assert event is not None and plan.blocked_at(2)

    after = plan.with_event(event)

    assert after.blocklist is plan.blocklist and after.masklist is plan.masklist
    blocked = after.with_event(Block(6, 0, (1,), "bad"))
    assert set(blocked.blocked_at(6)) == {0, 1} and set(blocked.blocked_at(5)) == {1}
    masked = after.with_event(Mask(6, 0, (1,), "bad"))
    assert masked.masked_at(6) == ((0, (1,)), (2, (7,))) and masked.masked_at(5) == ((2, (7,)),)


def test_unchanged_weights_are_no_event():
    """A policy that asks for what holds already leaves no trace."""
    plan = Plan.make({"a": 10, "b": 10}, 4, mixture=Mixture(weights=[3, 1]))

    assert plan.reweighting(7, integer_weights([6, 2])) is None
    event = plan.reweighting(7, integer_weights([1, 1]), "by hand")
    assert event == Reweight(7, 28, integer_weights([1, 1]), "by hand")
    assert plan.with_event(event).reweighting(9, integer_weights([1, 1])) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (7, "expected an object with named fields, found a number"),
        ({"kind": "later"}, "kind: expected one of reweight, rebatch, block, mask, rescore, choose, base"),
        ({"kind": "block", "step": 1, "dataset": 0, "indices": [1], "extra": 2}, "only the fields"),
        ({"kind": "block", "step": -1, "dataset": 0, "indices": [1]}, "step: expected an integer from 0"),
        ({"kind": "block", "step": 1, "dataset": 0, "indices": "abc"}, "indices: expected a list"),
        ({"kind": "reweight", "step": 1, "position": 4, "weights": [1, 2.5]}, r"weights\[1\]: expected an integer"),
        ({"kind": "rebatch", "step": 1, "epoch": 0, "offset": 0, "global_batch_size": 0}, "global_batch_size"),
        ({"kind": "base", "step": 1, "position": 4, "first_step": 1, "blocked": {"x": "1"}}, "number of a dataset"),
        ({"kind": "base", "step": 1, "position": 4, "first_step": 1, "blocked": {"0": "1 -4"}}, "gaps in base 36"),
        (
            {
                "kind": "base",
                "step": 1,
                "position": 4,
                "first_step": 1,
                "stage": {"start": 0, "weights": [1], "drawn": [1, 2], "residuals": [0]},
            },
            "stage.drawn: expected 1 integers",
        ),
    ],
)
def test_damaged_events_are_refused_by_field(fields, message):
    """Whatever a state or a ledger holds, the error names the place."""
    with pytest.raises(PlanError, match=message):
        event_from_dict(fields)
