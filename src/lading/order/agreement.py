"""The ranks of a run agree on its plan, or none of them starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lading.identity import World, fingerprint
from lading.identity.agreement import agree, field_differences
from lading.order.event import event_to_dict
from lading.order.plan import Plan
from lading.order.plan_json import differences, summary

_OWN = ("next step", "events")  # beside the summary of the plan


def agree_on_plan(world: World, plan: Plan, step: int) -> int:
    """Compare a loader's plan with rank 0's; all ranks raise the same WorldError if they differ, or all continue.

    For a loader to call when it starts its first iteration, and the first after a state was loaded: on every rank, not
    while it only peeks. See ``lading.identity.agreement.agree``.

    Args:
        world: This rank among how many.
        plan: The loader's plan, events included.
        step: The first step of the iteration.

    Returns:
        The loader's number, the same on every rank, from 1; 0 where there is no process group to ask.
    """
    if world.world_size == 1:
        return 0
    events = fingerprint([event_to_dict(event) for event in plan.events]) if plan.events else None
    value = {**summary(plan), "next step": step, "events": events}
    return agree(
        world,
        "the plan",
        value,
        differences=_differences,
        way_out="Give every rank the same arguments and the same data, and load the same checkpoint on all.",
    )


def _differences(theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    own = field_differences({n: theirs[n] for n in _OWN}, {n: mine[n] for n in _OWN})
    return [text for _, text in differences(theirs, mine)] + own
