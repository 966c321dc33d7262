"""Laws 5, 6 and 7 of weighted plans, on random mixtures: shares, passes, places, and when a change acts.

The small numbers run always, a thousand mixtures with ``make test-all``. Everything is checked against the samples of
the steps themselves and against weights worked out from what was asked for, not from the plan's own stages.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from lading.errors import PlanError
from lading.order.event import Rebatch
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import TOTAL, integer_weights
from lading.order.plan import Plan

MANY = pytest.mark.parametrize("numbers", [range(60), pytest.param(range(60, 1060), marks=pytest.mark.slow)])
SIZES = (1, 2, 3, 8, 31, 32, 100, 500, 1024, 4096, 4097, 5000)


def random_weights(rng: random.Random, number: int) -> list[float]:
    """Return weights from nothing to everything, at least one of them above 0."""
    weights = [rng.choice([0, rng.random(), 1e-6, 1e-3, 1, 30]) for _ in range(number)]
    weights[rng.randrange(number)] = 1 + rng.random()
    return weights


def random_plan(number: int) -> tuple[Plan, int, bool]:
    """Return a plan, steps to look at, and whether its weights are constant."""
    rng = random.Random(number)
    datasets = rng.randint(1, 12)
    lengths = {f"d{d}": rng.choice([1, 2, 5, 60, 700, 10**5]) for d in range(datasets)}
    size, steps = rng.choice(SIZES), rng.randint(5, 40)
    constant = number % 2 == 0
    if constant:
        mixture = Mixture(weights=random_weights(rng, datasets), epoch_samples=rng.randint(size, size * 12))
    else:
        times = sorted(rng.sample(range(1, steps * 2), rng.randint(1, 4)))
        stages = [(f"{t}ba", random_weights(rng, datasets)) for t in times]
        schedule = [(0, random_weights(rng, datasets)), *stages]
        mixture = Mixture(schedule=schedule, epoch_samples=rng.randint(size, size * 12))
    plan = Plan.make(lengths, size, seed=number, drop_last=rng.random() < 0.5, mixture=mixture)
    return changed(plan, rng, steps, constant), steps, constant


def changed(plan: Plan, rng: random.Random, steps: int, constant: bool) -> Plan:
    """Return the plan after some rebatches and reweightings."""
    for step in sorted(rng.sample(range(1, steps), min(rng.randint(0, 3), steps - 1))):
        if constant or rng.random() < 0.5:
            at = plan.locate(step)
            try:
                after = plan.with_event(Rebatch(step, at.epoch, at.offset, rng.choice(SIZES)))
                after.locate(step)
            except PlanError:
                continue  # an epoch with no complete batch of that size
            plan = after
        else:
            weights = integer_weights(random_weights(rng, len(plan.datasets)))
            event = plan.reweighting(step + rng.randint(0, 5), weights)
            plan = plan if event is None else plan.with_event(event)
    return plan


def asked_for(plan: Plan, position: int) -> tuple[int, ...]:
    """Return the weights that hold for a step that begins at a position: the last that was asked for by then."""
    changes = [*plan.mixture.stages, *((e.position, e.weights) for e in plan.events if hasattr(e, "weights"))]
    return sorted((c for c in changes if c[0] <= position), key=lambda c: c[0])[-1][1]


@MANY
def test_shares_hold_at_the_end_of_every_step(numbers):
    """Law 6: less than 2 samples off with constant weights, less than 5 with weights that change."""
    for number in numbers:
        plan, steps, constant = random_plan(number)
        drawn = planned = np.zeros(len(plan.datasets))
        position = 0

        for step in range(steps):
            bill = plan.bill(step)
            assert bill.position == position, "nothing is drawn that is not delivered"
            drawn = drawn + np.bincount(bill.dataset_idx, minlength=len(drawn))
            planned = planned + np.array(asked_for(plan, position)) / TOTAL * len(bill)
            position += len(bill)

            assert np.abs(drawn - planned).max() < (2 if constant else 5), (number, step)
            assert plan.counts(step + 1) == drawn.tolist()


@MANY
def test_every_pass_is_complete_before_the_next(numbers):
    """Law 6: the samples of a dataset come pass by pass; none comes twice before all have come."""
    for number in numbers:
        plan, steps, _ = random_plan(number)
        last = plan.locate(steps - 1)

        datasets, indices = plan.order.samples(0, last.position + last.size)

        for d, length in enumerate(plan.lengths):
            mine = indices[datasets == d]
            passes = np.arange(len(mine)) // length
            assert len(np.unique(passes * length + mine)) == len(mine), (number, d)
        for step in {0, steps // 2, steps - 1}:
            at, bill = plan.locate(step), plan.bill(step)
            np.testing.assert_array_equal(bill.dataset_idx, datasets[at.position : at.position + at.size])
            np.testing.assert_array_equal(bill.idx, indices[at.position : at.position + at.size])


@MANY
def test_where_is_a_full_scan(numbers):
    """Law 5, both directions: exactly the places of all bills that hold the sample, between any two steps."""
    for number in numbers:
        plan, steps, _ = random_plan(number)
        rng = random.Random(number)
        bills = [plan.bill(step) for step in range(steps)]
        start, stop = sorted((rng.randint(0, steps), rng.randint(0, steps)))

        for d in {rng.randrange(len(plan.datasets)) for _ in range(3)}:
            held = np.unique(np.concatenate([b.idx[b.dataset_idx == d] for b in bills]))
            for index in {int(i) for i in held[:1]} | {rng.randrange(plan.lengths[d])}:
                scan = [
                    (bill.epoch, bill.step, slot)
                    for bill in bills[start:stop]
                    for slot in np.flatnonzero((bill.dataset_idx == d) & (bill.idx == index)).tolist()
                ]
                assert [place[:3] for place in plan.where(d, index, start, stop)] == scan, (number, d, index)


@MANY
def test_a_change_moves_nothing_before_it(numbers):
    """Law 7: a reweighting or a rebatch at a step leaves every earlier bill as it was."""
    for number in numbers:
        plan, steps, _ = random_plan(number)
        rng = random.Random(number + 1)
        step = rng.randint(1, steps)
        event = plan.reweighting(step, integer_weights(random_weights(rng, len(plan.datasets))))
        if event is None:
            continue

        after = plan.with_event(event)

        for earlier in range(max(step - 5, 0), step):
            assert after.bill(earlier).digest == plan.bill(earlier).digest
        assert after.order.weights_at(after.locate(step).position) == event.weights


def test_an_epoch_of_500_shows_500_different_samples():
    """Weights equal to the lengths: every sample once, whatever the batch size."""
    for size in (1, 8, 20, 100, 500):
        plan = Plan.make({"a": 250, "b": 125, "c": 125}, size, mixture=Mixture(weights=[250, 125, 125]))

        seen = [sample for step in range(plan.epoch_steps(0)) for sample in plan.bill(step).samples]

        assert len(seen) == len(set(seen)) == 500


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 5000])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_change_planned_for_step_30_acts_at_step_30(size, drop_last):
    """Not before and not after, whatever the batch size and the epochs."""
    mixture = Mixture(schedule=[(0, [1, 0]), ("30ba", [0, 1])], epoch_samples=size * 4 + size // 2)
    plan = Plan.make({"a": 500, "b": 500}, size, drop_last=drop_last, mixture=mixture)

    for step in range(40):
        assert set(plan.bill(step).dataset_idx.tolist()) == {int(step >= 30)}


@pytest.mark.parametrize("lookahead", [0, 1, 32])
def test_a_run_time_change_acts_right_after_the_lookahead(lookahead):
    """After step s it acts at step s + lookahead_steps + 1."""
    plan = Plan.make({"a": 500, "b": 500}, 24, lookahead_steps=lookahead, mixture=Mixture(weights=[1, 0]))
    s = 17

    plan = plan.with_event(plan.reweighting(s + 1 + plan.lookahead_steps, integer_weights([0, 1]), "by hand"))

    for step in range(s + lookahead + 10):
        assert set(plan.bill(step).dataset_idx.tolist()) == {int(step >= s + lookahead + 1)}


def test_an_unplanned_rebatch_moves_a_stage_to_the_next_border_of_a_step():
    """The stage waits for the same sample; nothing before the rebatch moves."""
    plan = Plan.make({"a": 900, "b": 900}, 10, mixture=Mixture(schedule=[(0, [1, 0]), ("30ba", [0, 1])]))

    after = plan.with_event(Rebatch(20, 0, 200, 64))

    assert all(after.bill(step).digest == plan.bill(step).digest for step in range(20))
    firsts = [set(after.bill(step).dataset_idx.tolist()) for step in range(20, 25)]
    assert firsts == [{0}, {0}, {1}, {1}, {1}]  # positions 200, 264, 328: the first at or after 300


def test_deviations_do_not_add_up_over_stages():
    """A thousand short stages: still less than 5 from the start of the run."""
    rng = random.Random(5)
    schedule = [(f"{3 * k}ba" if k else 0, random_weights(rng, 7)) for k in range(1000)]
    plan = Plan.make({f"d{k}": 50 for k in range(7)}, 11, mixture=Mixture(schedule=schedule))
    drawn = planned = np.zeros(7)

    for step in range(3000):
        bill = plan.bill(step)
        drawn = drawn + np.bincount(bill.dataset_idx, minlength=7)
        planned = planned + np.array(asked_for(plan, bill.position)) / TOTAL * len(bill)

        assert np.abs(drawn - planned).max() < 5


def test_datasets_that_leave_do_not_weigh_on_a_heavy_one():
    """500 of 1 000 datasets leave, each drawn half a sample too often: one heavy dataset does not pay for all."""
    plan = Plan.make({f"d{k}": 50 for k in range(1000)}, 500, mixture=Mixture(weights=[1] * 1000))
    left = set(range(1000)) - set(plan.bill(0).dataset_idx.tolist())
    weights = [1e-6 if d in left else 0 for d in range(1000)]
    weights[min(left)] = 1.0

    plan = plan.with_event(plan.reweighting(1, integer_weights(weights)))

    drawn = planned = np.zeros(1000)
    for step in range(6):
        bill = plan.bill(step)
        drawn = drawn + np.bincount(bill.dataset_idx, minlength=1000)
        planned = planned + np.array(asked_for(plan, bill.position)) / TOTAL * len(bill)
        assert np.abs(drawn - planned).max() < 2
