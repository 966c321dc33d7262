"""The state of a loader: what a checkpoint keeps, the same on every rank.

    version · epoch · position · step · global_batch_size · plan · summary · events · policy · run · attempt · launch

``run``, ``attempt`` and ``launch`` name the ledger's attempt that the state was taken in: "", -1 and "" without one.
Always the same flat keys; what varies in length is one JSON string (torch's
distributed checkpoint takes an empty list for a missing key). It speaks of
batches yielded, never of prefetched ones, and knows nothing of ranks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lading.errors import LadingError, ResumeError
from lading.order import Plan, Rebatch
from lading.order.event import Event, event_from_dict, event_to_dict
from lading.order.plan_json import differences, summary

STATE_VERSION = 1
NO_MARK: Mapping[str, Any] = {"run": "", "attempt": -1, "launch": ""}
_NUMBERS = ("version", "epoch", "position", "step", "global_batch_size")
_TEXTS = ("plan", "summary", "events")
# Sizes may change where a run is resumed: the change becomes an event of the plan.
_SIZES = ("global_batch_size", "chunk_batches")


@dataclass(frozen=True)
class Resume:
    """What may differ between a saved run and the loader that resumes it.

    Attributes:
        rebatch: Whether the global batch size may: from there on it is the loader's.
        changed_plan: Whether seed, data or weights may: the loader's plan is followed from the same step on.
    """

    rebatch: bool = False
    changed_plan: bool = False


def make_state(
    plan: Plan, step: int, policy: Mapping[str, Any] | None = None, mark: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the state of a loader that is before a step; ``mark`` names the attempt it is taken in."""
    at = plan.locate(step)
    return {
        "version": STATE_VERSION,
        "epoch": at.epoch,
        "position": at.position,
        "step": step,
        "global_batch_size": plan.clock.batch,
        "plan": plan.fingerprint,
        "summary": json.dumps(summary(plan), separators=(",", ":")),
        "events": json.dumps([event_to_dict(e) for e in plan.events], separators=(",", ":")),
        "policy": json.dumps(policy or {}, separators=(",", ":")),
        **marked(mark),
    }


def marked(mark: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the keys of a state that name the attempt it is taken in."""
    return {key: (mark or NO_MARK)[key] for key in NO_MARK}


def loaded_mark(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run, attempt and launch that a state was taken in, and its step, for ``Trackers.begin``."""
    try:
        run, launch = (str(state.get(key, "")) for key in ("run", "launch"))
        return {"run": run, "attempt": int(state.get("attempt", -1)), "launch": launch, "step": int(state["step"])}
    except (TypeError, ValueError, KeyError) as error:
        raise ResumeError(f"the state is damaged: {error}. Take an older checkpoint.") from error


def restored_plan(state: Mapping[str, Any], plan: Plan, allowed: Resume) -> tuple[Plan, int]:
    """Return the plan that resumes from a state, and the step it resumes at.

    Args:
        state: What ``make_state`` returned.
        plan: The plan of the loader that loads it, without events.
        allowed: What may differ.
    """
    numbers, texts = _checked(state)
    saved = json.loads(texts["summary"])
    changed = differences(saved, summary(plan))
    order_changes = [text for field, text in changed if field not in _SIZES]
    if order_changes and not allowed.changed_plan:
        raise ResumeError(
            f"the saved plan differs in {len(order_changes)} place{'s' * (len(order_changes) > 1)}: "
            f"{', '.join(order_changes)}. Samples would repeat or be missed. "
            "Pass on_resume=Resume(changed_plan=True) to resume anyway."
        )
    events = _events(texts["events"])
    if order_changes:  # another order: the same step of it comes next
        return plan, numbers["step"]
    original = _resized(plan, saved).with_events(events)
    return _rebatched(original, plan, numbers, allowed), numbers["step"]


def _checked(state: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, str]]:
    if not isinstance(state, Mapping):
        raise ResumeError(f"a loader state is a dict: found {type(state).__name__}. Pass what state_dict() returned.")
    missing = [key for key in (*_NUMBERS, *_TEXTS) if key not in state]
    if missing:
        raise ResumeError(
            f"the state lacks {', '.join(missing)}; it has {', '.join(map(str, state)) or 'nothing'}. "
            "It is truncated, or another loader's. Pass what state_dict() of a Lading loader returned."
        )
    try:
        numbers = {key: int(state[key]) for key in _NUMBERS}
        texts = {key: str(state[key]) for key in _TEXTS}
        if not isinstance(json.loads(texts["summary"]), dict):
            raise ValueError("summary is no object")
    except (TypeError, ValueError) as error:
        raise ResumeError(f"the state is damaged: {error}. Take an older checkpoint.") from error
    if numbers["version"] != STATE_VERSION:
        raise ResumeError(
            f"the state has version {numbers['version']}, this Lading reads {STATE_VERSION}. "
            "Load it with the Lading that saved it."
        )
    return numbers, texts


def _events(text: str) -> list[Event]:
    try:
        return [event_from_dict(e) for e in json.loads(text)]
    except (json.JSONDecodeError, AttributeError, LadingError) as error:
        raise ResumeError(f"the events in the state are damaged: {error}. Take an older checkpoint.") from error


def _resized(plan: Plan, saved: Mapping[str, Any]) -> Plan:
    """Return the loader's plan with the sizes the run began with."""
    sizes = {"global_batch_size": saved["global_batch_size"], "chunk_batches": saved["chunk_batches"]}
    return Plan(**{**{f: getattr(plan, f) for f in plan.__dataclass_fields__}, **sizes, "events": ()})


def _rebatched(original: Plan, wanted: Plan, numbers: Mapping[str, int], allowed: Resume) -> Plan:
    step = numbers["step"]
    at = original.locate(step)
    if at.position != numbers["position"] or at.epoch != numbers["epoch"]:
        raise ResumeError(
            f"the state says position {numbers['position']} in epoch {numbers['epoch']} for step {step}, its plan says "
            f"{at.position} in epoch {at.epoch}: it is damaged. Take an older checkpoint."
        )
    now, new = original.clock.batch, wanted.global_batch_size
    if now != new and not allowed.rebatch:
        raise ResumeError(
            f"the saved run has global batches of {now} samples, this loader makes {new}. Keep global_batch_size={now} "
            "(any number of ranks may share it), or pass on_resume=Resume(rebatch=True) to continue with the new size."
        )
    if now == new and original.clock.chunk_batches == wanted.chunk_batches:
        return original
    return original.with_event(Rebatch(step, at.epoch, at.offset, new, wanted.chunk_batches))
