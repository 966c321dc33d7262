"""Chunk sizes that change: as planned or by events; no sample moves, and a state resumes in the middle of it."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings, strategies as st

from lading.errors import PlanError
from lading.order.adaptation import resizing
from lading.order.event import event_from_dict, event_to_dict
from lading.order.plan import Plan


def chunk_lengths(plan: Plan, steps: int) -> list[int]:
    """Return the batches of each chunk of the first steps, counted from the bills."""
    return [len(list(group)) for _, group in itertools.groupby(plan.bill(step).chunk for step in range(steps))]


def test_planned_sizes_begin_at_their_chunk():
    """From chunk 0 on 2 batches, from chunk 3 on 5; the last chunk of a pass is short."""
    plan = Plan.make({"a": 50}, 2, chunk_batches=2, chunk_schedule=((0, 2), (3, 5)))

    assert chunk_lengths(plan, 50) == [2, 2, 2, 5, 5, 5, 4, 5, 5, 5, 5, 5]
    assert [plan.chunk_start(c) for c in range(5)] == [0, 2, 4, 6, 11] and plan.chunk_steps(6) == 4
    plain = Plan.make({"a": 50}, 2, chunk_batches=2)
    assert [plan.bill(s).samples for s in range(50)] == [plain.bill(s).samples for s in range(50)]
    assert plain.fingerprint != plan.fingerprint and Plan.from_json(plan.to_json()) == plan
    assert "planned chunk sizes" in plain.differences(plan)[0]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.lists(st.integers(1, 6), min_size=5, max_size=5),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=4),
    st.integers(0, 60),
    st.booleans(),
)
@settings(max_examples=60)
def test_any_sizes_replay_from_any_step(sizes, gaps, events, stop, ramp):
    """Planned sizes, sizes by events and a ramp of the batch size: numbers rise by one, and a base answers the same."""
    chunks = tuple(zip([0, *itertools.accumulate(gaps)], sizes, strict=False))
    fields = {"batch_schedule": [(0, 3), (17, 5)]} if ramp else {"batch_size": 3}
    plan = Plan.make(
        {"a": 70, "b": 31}, chunk_batches=sizes[0], chunk_schedule=chunks if len(chunks) > 1 else (), **fields
    )
    samples = [plan.bill(s).samples for s in range(70)]
    for step, size in sorted(events):
        event = resizing(plan, step, size)
        plan = plan if event is None or any(step <= e.step for e in plan.events) else plan.with_event(event)

    numbers = [plan.bill(s).chunk for s in range(70)]
    resumed = plan.with_events(
        [event_from_dict(json.loads(json.dumps(event_to_dict(e)))) for e in plan.events_from(stop)]
    )

    assert numbers[0] == 0 and all(b - a in (0, 1) for a, b in itertools.pairwise(numbers))
    assert [plan.bill(s).samples for s in range(70)] == samples
    for chunk in range(numbers[-1]):
        start = plan.chunk_start(chunk)
        assert numbers.index(chunk) == start and numbers.count(chunk) == plan.chunk_steps(chunk)
    assert [resumed.locate(s) for s in range(stop, 70)] == [plan.locate(s) for s in range(stop, 70)]


def test_wrong_schedules_are_refused():
    """In order, from chunk 0 on, beginning with chunk_batches."""
    for bad in (((1, 3),), ((0, 2), (5, 3)), ((0, 3), (4, 0)), ((0, 3), (4, 5), (2, 6))):
        with pytest.raises(PlanError, match="chunk_schedule is"):
            Plan.make({"a": 9}, 2, chunk_batches=3, chunk_schedule=bad)


def test_the_chunks_of_a_pass_are_known_after_a_resume_inside_it():
    """A state keeps how many chunks its pass had: progress counts on, although their sizes are forgotten."""
    plan = Plan.make({"a": 100}, 2, chunk_batches=3)
    for step, size in ((6, 2), (10, 7), (60, 4)):
        plan = plan.with_event(resizing(plan, step, size))

    for stop in (12, 49, 50, 51, 65, 99):
        base = plan.with_events(
            [event_from_dict(json.loads(json.dumps(event_to_dict(e)))) for e in plan.events_from(stop)]
        )
        for epoch in (plan.locate(stop).epoch, plan.locate(stop).epoch + 1):
            assert base.clock.first_chunk(epoch) == plan.bill(plan.epoch_start(epoch)).chunk
