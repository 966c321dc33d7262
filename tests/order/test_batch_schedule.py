"""A planned ramp-up of the batch size: exact bills and places, epochs whole, chunks cut short."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from lading.errors import PlanError
from lading.order.batch_schedule import planned_sizes
from lading.order.event import Rebatch
from lading.order.mixture.request import Mixture
from lading.order.plan import Plan

RAMP = [(0, 32), ("1000ba", 64)]
ramps = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 30)), min_size=1, max_size=4)


def schedule_of(gaps) -> list[tuple[int, int]]:
    """Return points that begin at 0, each so many steps after the one before."""
    points, step = [(0, gaps[0][1])], 0
    for gap, size in gaps[1:]:
        step += gap
        points.append((step, size))
    return points


def size_at(points, step: int) -> int:
    """Return the size that a schedule names for a step."""
    return [size for first, size in points if first <= step][-1]


@given(ramps, st.integers(31, 90), st.booleans(), st.sampled_from([None, 1, 4]), st.sampled_from(["all", "mixed"]))
def test_every_step_has_its_planned_size_and_epochs_stay_whole(gaps, length, drop_last, chunk_batches, kind):
    """Steps are full but the last of an epoch; without weights every sample comes once; chunks have no gaps."""
    points = schedule_of(gaps)
    mixture = None if kind == "all" else Mixture(weights=[2, 1])
    fields = {"drop_last": drop_last, "chunk_batches": chunk_batches, "mixture": mixture}
    plan = Plan.make({"a": length - 9, "b": 9}, batch_schedule=points, **fields)
    steps = max(plan.epoch_start(3), 40)

    bills = [plan.bill(step) for step in range(steps)]

    for bill in bills:
        whole, last = size_at(points, bill.step), plan.epoch_start(bill.epoch + 1) - 1
        assert len(bill) == whole or (bill.step == last and not drop_last and len(bill) < whole)
    if mixture is None:
        for epoch in range(3):
            seen = [s for bill in bills if bill.epoch == epoch for s in bill.samples]
            assert len(seen) == len(set(seen)) and (drop_last or len(seen) == length)
    else:
        assert [b.position for b in bills[1:]] == [b.position + len(b) for b in bills[:-1]]
    if chunk_batches is not None:
        check_chunks(plan, points, steps)
    check_places(plan, bills)


def check_chunks(plan: Plan, points, steps: int) -> None:
    """A chunk ends where it is full, where its epoch ends, or where the size changes."""
    located = [plan.locate(step) for step in range(steps + 1)]
    borders = {step for step, size in points if step and size != size_at(points, step - 1)}
    for before, after in itertools.pairwise(located):
        ends = before.chunk_step + 1 == plan.chunk_batches or after.epoch != before.epoch or after.step in borders
        expected = (before.chunk + 1, 0) if ends else (before.chunk, before.chunk_step + 1)
        assert (after.chunk, after.chunk_step) == expected
    for chunk in range(located[-1].chunk):
        assert plan.locate(plan.chunk_start(chunk)).chunk_step == 0


def check_places(plan: Plan, bills) -> None:
    """``where`` is a full scan of the bills."""
    for dataset, index in ((0, 3), (1, 8)):
        scan = [(b.step, slot) for b in bills for slot, s in enumerate(b.samples) if s == (dataset, index)]
        assert [(p.step, p.slot) for p in plan.where(dataset, index, 0, len(bills))] == scan


def test_a_ramp_is_a_field_of_the_plan_and_of_its_fingerprint():
    """In JSON and back; a plan without one says nothing of it; points in samples and epochs become steps."""
    plan = Plan.make(10**6, batch_schedule=RAMP)

    assert plan.batch_schedule == ((0, 32), (1000, 64)) and plan.global_batch_size == 32
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.fingerprint != Plan.make(10**6, 32).fingerprint
    assert plan.differences(Plan.make(10**6, 32)) == ["batch schedule [[0, 32], [1000, 64]] -> None"]
    assert "batch_schedule" not in Plan.make(10**6, 32).to_json()
    assert Plan.make(10**6, batch_schedule=[(0, 32), ("5ba", 32)]) == Plan.make(10**6, 32)
    assert planned_sizes([(0, 10), ("95sp", 20), ("2ep", 40)], 100) == ((0, 10), (10, 20), (15, 40))


def test_a_schedule_of_weights_counts_in_the_steps_of_the_ramp():
    """A change planned for step 30 acts at step 30, whatever the sizes before it."""
    mixture = Mixture(schedule=[(0, [1, 0]), ("30ba", [0, 1])])
    plan = Plan.make({"a": 9000, "b": 9000}, batch_schedule=[(0, 8), ("10ba", 16), ("25ba", 64)], mixture=mixture)

    assert [set(plan.bill(s).dataset_idx.tolist()) for s in (28, 29, 30, 31)] == [{0}, {0}, {1}, {1}]


def test_a_rebatch_replaces_what_is_still_planned():
    """An unplanned size holds to the end, unless the event brings the rest of the schedule with it."""
    plan = Plan.make(10_000, batch_schedule=[(0, 10), (5, 20), (9, 40)])
    at = plan.locate(6)

    stopped = plan.with_event(Rebatch(6, at.epoch, at.offset, 7))
    kept = plan.with_event(Rebatch(6, at.epoch, at.offset, 7, later=plan.clock.pace_at(6).later))

    assert [len(stopped.bill(s)) for s in (4, 5, 6, 8, 9, 50)] == [10, 20, 7, 7, 7, 7]
    assert [len(kept.bill(s)) for s in (4, 5, 6, 8, 9, 50)] == [10, 20, 7, 7, 40, 40]


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "expected 1 to 4096 pairs"),
        ("32", "expected 1 to 4096 pairs"),
        ([(0, 32), (5,)], r"has the point \(5,\): expected a pair"),
        ([(0, 0)], "global batch size of at least 1"),
        ([(0, True)], "global batch size of at least 1"),
        ([("5ba", 32)], "begins at 5ba: expected its first point at 0"),
        ([(0, 32), (0, 64)], "goes back in time"),
        ([(0, 32), (9, 64), ("5ba", 8)], "goes back in time: 5ba is step 5, the point before it step 9"),
        ([(0, 32), ("1.5ba", 64)], "expected a step, not a part of one"),
        ([(0, 32), ("5tok", 64)], "Tokens depend on the mixture"),
        ([(0, 32), ("soon", 64)], "'soon' is no point in a run"),
    ],
)
def test_schedules_that_make_no_sense_are_refused(points, message):
    """Each with a sentence that says what to do."""
    with pytest.raises(PlanError, match=message):
        Plan.make(1000, batch_schedule=points)


def test_a_batch_size_beside_a_schedule_is_refused():
    """One of them says how large a step is."""
    for sizes in ({"batch_size": 32, "batch_schedule": RAMP}, {}):
        with pytest.raises(PlanError, match="expected one of them, such as batch_schedule="):
            Plan.make(1000, **sizes)
    with pytest.raises(PlanError, match=r"expected \(step, size\) pairs in order, the first \(0, global_batch_size\)"):
        Plan(Plan.make(10, 2).datasets, 32, batch_schedule=((0, 16), (4, 32)))
    with pytest.raises(PlanError, match="no complete global batch of 64"):
        Plan.make(40, batch_schedule=[(0, 16), (4, 64)], drop_last=True).bill(0)
