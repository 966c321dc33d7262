"""The clock both ways: steps to positions and back, one by one and many at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.errors import PlanError
from lading.order.clock import Batching, Clock
from lading.order.event import Rebatch
from lading.order.mixture.request import Mixture
from lading.order.plan import Plan


@st.composite
def clocks(draw) -> Clock:
    """Draw a clock with planned and unplanned changes of size."""
    sizes = [(0, draw(st.integers(1, 20)))]
    for gap in draw(st.lists(st.integers(1, 15), max_size=3)):
        sizes.append((sizes[-1][0] + gap, draw(st.integers(1, 20))))
    batching = Batching(tuple(sizes), draw(st.booleans()), draw(st.sampled_from([None, 3])))
    given = {"epoch_samples": draw(st.integers(20, 70)), "batching": batching, "gapless": draw(st.booleans())}
    clock, rebatches = Clock(**given), []
    for step in sorted(draw(st.sets(st.integers(1, 40), max_size=2))):
        at = clock.locate(step)
        rebatches.append(Rebatch(step, at.epoch, at.offset, draw(st.integers(1, 20)), batching.chunk_batches))
        clock = Clock(**given, rebatches=rebatches)
    return clock


@given(clocks())
def test_steps_and_positions_are_inverses(clock):
    """Every sample of every step is found again; what no step holds is said; the first step at or after a position."""
    located = [clock.locate(step) for step in range(80)]

    starts, sizes = clock.spans(np.arange(80))

    assert starts.tolist() == [at.position for at in located] and sizes.tolist() == [at.size for at in located]
    held = {at.position + slot: (at.step, slot) for at in located for slot in range(at.size)}
    positions = np.arange(located[-1].position)
    steps, slots = clock.steps_of(positions)
    for position, step, slot in zip(positions.tolist(), steps.tolist(), slots.tolist(), strict=True):
        assert (step, slot) == held[position] if position in held else step == -1
    if clock.gapless:
        assert len(held) == located[-1].position + located[-1].size, "no gap, whatever is dropped"
    for position in range(0, located[60].position, 7):
        assert clock.step_from(position) == next(at.step for at in located if at.position >= position)


@given(clocks())
def test_epochs_and_chunks_are_found_again(clock):
    """First steps, numbers inside and offsets agree with walking through the steps."""
    located = [clock.locate(step) for step in range(80)]

    for before, at in zip([None, *located], located, strict=False):
        begins = before is None or before.epoch != at.epoch
        assert at.epoch_step == (0 if begins else before.epoch_step + 1)
        assert at.offset == (0 if begins else before.offset + before.size)
        assert clock.epoch_start(at.epoch) == at.step - at.epoch_step
        if at.chunk is not None:
            assert clock.chunk_start(at.chunk) == at.step - at.chunk_step


def test_numpy_integers_are_integers():
    """Lengths and sizes from arrays make the plan that Python's make, JSON included."""
    ours = Plan.make({"a": np.int64(70), "b": np.int32(30)}, np.int64(8), seed=np.int64(3), chunk_batches=np.int16(4))
    theirs = Plan.make({"a": 70, "b": 30}, 8, seed=3, chunk_batches=4)

    assert ours == theirs and ours.to_json() == theirs.to_json()
    assert Plan.make(np.int64(10), 3).lengths == (10,)
    for wrong in (2.5, "7", None):
        with pytest.raises(PlanError, match="expected an integer"):
            Plan.make({"a": wrong}, 4)


@pytest.mark.parametrize("mixture", [None, Mixture(weights=[1, 1])])
def test_positions_that_no_integer_holds_are_refused(mixture):
    """Far steps are right, or refused with a sentence; ``where`` is never silently empty."""
    plan = Plan.make({"a": 10**6, "b": 10**6}, 1000, mixture=mixture)
    far = (1 << 59) // 1000
    sample = plan.bill(far).samples[7]

    assert 7 in [p.slot for p in plan.where(sample.dataset, sample.index, far, far + 1)]
    for step in ((1 << 62) // 1000 + 1, 1 << 70):
        for ask in (plan.bill, plan.counts, lambda s: plan.where(0, 0, s, s + 5)):
            with pytest.raises(PlanError, match=r"lies beyond position 2\*\*6"):
                ask(step)
    with pytest.raises(PlanError, match="more than a plan can hold"):
        Plan.make((1 << 62) + 1, 8)
