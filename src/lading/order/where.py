"""Where a plan holds a sample: the inverse of its bills.

name ─▶ rows that are copies of it, or that it comes instead of ─▶ positions ─▶ (epoch, step, slot)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lading.identity import Place, rank_of
from lading.order.clock import Clock

if TYPE_CHECKING:
    from lading.order.adaptation import PlanView

I64 = NDArray[np.int64]


def places(
    plan: PlanView, number: int, index: int, start: int, stop: int | None, world_size: int | None
) -> list[Place]:
    """Return every place that holds a sample or a copy of it; the arguments are those of ``Plan.where``."""
    plan.parts.check_index(number, index)
    if stop is None:
        stop = plan.clock.epoch_start(plan.clock.locate(start).epoch + 1)
    steps, slots = _steps_holding(plan, number, index, start, stop)
    return [
        _place(plan.clock, step, slot, world_size) for step, slot in zip(steps.tolist(), slots.tolist(), strict=True)
    ]


def _steps_holding(plan: PlanView, number: int, index: int, start: int, stop: int) -> tuple[I64, I64]:
    """Return steps and slots that hold a sample, substitutions taken into account."""
    if plan.blocklist is None:
        return _copies(plan, number, [index], start, stop)
    cuts = [start, *(s for s in plan.blocklist.change_steps if start < s < stop), stop]
    found = [_copies(plan, number, [], start, start)]
    for low, high in itertools.pairwise(cuts):
        table = plan.blocklist.at(low).get(number, {})
        originals = [i for i, instead in table.items() if instead == index]
        if index not in table:
            originals.append(index)
        found.append(_copies(plan, number, originals, low, high))
    return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def _copies(plan: PlanView, number: int, indices: Sequence[int], start: int, stop: int) -> tuple[I64, I64]:
    """Return steps and slots whose rows are copies of some samples, in order."""
    found = [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))]
    for index in indices:
        source, rows = plan.parts.rows_of(number, index)
        found += [steps_of_row(plan, source, row, start, stop) for row in rows.tolist()]
    if len(found) == 2:
        return found[1]
    steps, slots = (np.concatenate([part[side] for part in found]) for side in (0, 1))
    rank = np.lexsort((slots, steps))
    return steps[rank], slots[rank]


def steps_of_row(plan: PlanView, source: int, row: int, start: int, stop: int) -> tuple[I64, I64]:
    """Return the steps and slots in ``[start, stop)`` at which the order has a row of a source, blocks aside."""
    if stop <= start:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    last = plan.clock.locate(stop - 1)
    low, high = plan.clock.locate(start).position, last.position + last.size
    steps, slots = plan.clock.steps_of(plan.order.positions(source, row, low, high))
    kept = (steps >= start) & (steps < stop)
    return steps[kept], slots[kept]


def _place(clock: Clock, step: int, slot: int, world_size: int | None) -> Place:
    epoch = clock.locate(step).epoch
    if world_size is None:
        return Place(epoch, step, slot)
    return Place(epoch, step, slot, rank_of(slot, clock.batch_at(step), world_size))
