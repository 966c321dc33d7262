"""Whether a claim's model learned from a sample: arithmetic over plans, without data, run or table.

name ─▶ plan.where ─▶ the steps that updates used ─▶ without what was left out, with what came instead
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from lading.errors import ConfigError, LadingError, LedgerError, PlanError
from lading.order.plan import Plan
from lading.report.claim.statement import Claim, ClaimedSpan

USED, NOT_USED = "used", "not used"
_FAR = 4096  # steps that were passed over: two stretches, because nobody should look at the passes between


class ClaimedUse(NamedTuple):
    """A place at which an update used a sample."""

    run: str
    attempt: int
    step: int
    epoch: int
    slot: int


def answer_of(claim: Claim, dataset: str, index: int) -> tuple[str, list[ClaimedUse]]:
    """Return ``used`` and every use, or ``not used``; refuse what the claim cannot say.

    Args:
        claim: What is claimed of the model.
        dataset: Name of the dataset.
        index: Index in it.
    """
    found: set[ClaimedUse] = set()
    names: set[str] = set()
    known, refused = False, None
    for run in (run for run in claim.runs if not run.unprovable):
        for span, plan in ((span, plan_of(claim, span)) for span in run.spans):
            names |= {name for name in plan.names if name}
            if dataset not in plan.names:
                continue
            try:
                found |= {ClaimedUse(run.run, span.attempt, *place) for place in _places(plan, span, dataset, index)}
                known = True
            except PlanError as error:  # this run's dataset of that name is shorter
                refused = error
    unknown = [*claim.unknown, *(run.unprovable for run in claim.runs if run.unprovable)]
    if found:
        return USED, sorted(found)
    if unknown:
        raise LedgerError(
            f"cannot be proven: no use of sample {index} of {dataset!r} follows from a plan, and not all that the "
            f"model learned from does: {unknown[0]}."
        )
    if refused is not None and not known:
        raise refused
    if not known:
        have = ", ".join(map(repr, sorted(names))) or "none"
        raise ConfigError(f"no dataset {dataset!r} taught this model: its family has {have}. Check the name.")
    return NOT_USED, []


def plan_of(claim: Claim, span: ClaimedSpan) -> Plan:
    """Return the plan that a span followed, with the events that changed it."""
    assert span.plan is not None  # otherwise its run is unprovable
    try:
        plan = Plan.from_json(json.dumps({**claim.plans[span.plan], "events": list(span.events)}))
    except LadingError:
        raise
    except Exception as error:  # signed by somebody trusted, and yet no plan
        raise PlanError(
            f"the plan {span.plan} of the claim cannot be used ({error}). Ask for another claim."
        ) from error
    if plan.fingerprint != span.plan:
        raise PlanError(f"the claim has a plan {plan.fingerprint} where attempt {span.attempt} followed {span.plan}.")
    return plan


def _places(plan: Plan, span: ClaimedSpan, dataset: str, index: int) -> Iterator[tuple[int, int, int]]:
    """Yield step, epoch and slot of each use in a span."""
    number = plan.number_of(dataset)
    plan.parts.check_index(number, index)
    used = np.array(span.steps, dtype=np.int64).reshape(-1, 2)
    places: dict[tuple[int, int], int] = {}
    for first, stop in _stretches(used):
        for place in plan.where(number, index, first, stop):
            if _is_used(used, place.step):
                places[place.step, place.slot] = place.epoch
    for step, slot, other, planned, instead in span.exceptions:
        if other == number and _is_used(used, step):
            if planned == index:
                places.pop((step, slot), None)
            if instead == index:
                places[step, slot] = plan.locate(step).epoch
    yield from ((step, epoch, slot) for (step, slot), epoch in places.items())


def _stretches(used: Any) -> list[tuple[int, int]]:
    """Return the ranges to look at: those of steps that are near each other, together."""
    found: list[tuple[int, int]] = []
    for first, stop in used.tolist():
        if found and first - found[-1][1] <= _FAR:
            found[-1] = found[-1][0], stop
        else:
            found.append((first, stop))
    return found


def _is_used(used: Any, step: int) -> bool:
    place = int(np.searchsorted(used[:, 0], step, side="right")) - 1
    return place >= 0 and step < int(used[place, 1])
