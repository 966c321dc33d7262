"""The state of a loader: what a checkpoint keeps, the same on every rank.

    version · epoch · position · step · global_batch_size · lookahead_steps · plan · summary · events · policy
    run · attempt · launch        the ledger's attempt that the state was taken in: "", -1 and "" without one

Always the same flat keys; what varies in length is one JSON string (torch's
distributed checkpoint takes an empty list for a missing key). It speaks of
batches yielded, never of prefetched ones, and knows nothing of ranks. Events
that have acted are kept as what resuming needs of them, so a state does not
grow with the past. Every field is checked when it is read, those of policies too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lading.errors import LadingError, LoaderError, ResumeError
from lading.identity import Bill
from lading.loader.request import Resume
from lading.order import Plan, Rebatch
from lading.order.event import PAIRS, Event, event_to_dict, read_event
from lading.order.plan_json import check_order_version, differences, summary
from lading.runtime.fields import COUNT, SIZE, Fields, FieldTable, Origin, given, named, optional, record_of, tuple_of

STATE_VERSION = 1
NO_MARK: Mapping[str, Any] = {"run": "", "attempt": -1, "launch": ""}
# Sizes may change where a run is resumed: the change becomes an event of the plan.
_SIZES = ("global_batch_size", "batch_schedule", "chunk_batches")
_WAY_OUT = "It is damaged, or another loader's. Pass what state_dict() of a Lading loader returned."
_ANYWAY = "pass on_resume=Resume(changed_plan=True) to resume anyway"
_UNEVEN = "samples of this epoch would repeat or be missed"
_LONGEST = 1 << 26
_MOST_STEP = 1 << 60


@dataclass(frozen=True)
class SavedState:
    """A state whose fields were checked.

    Attributes:
        summary: The summary of the plan that the run began with, sizes included.
        sizes: Global batch size, batch schedule and chunk size that the run began with.
        events: What changed the plan since.
        policy: What the policy remembers.
        mark: Run, attempt and launch it was taken in, and its step.
    """

    step: int
    epoch: int
    position: int
    lookahead_steps: int
    summary: dict[str, Any]
    sizes: dict[str, Any]
    events: tuple[Event, ...]
    policy: dict[str, Any]
    mark: dict[str, Any]


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
        "global_batch_size": plan.clock.batch_at(step),
        "lookahead_steps": plan.lookahead_steps,
        "plan": plan.fingerprint,
        "summary": json.dumps(summary(plan), separators=(",", ":")),
        "events": json.dumps([event_to_dict(e) for e in plan.events_from(step)], separators=(",", ":")),
        "policy": _as_json(policy or {}),
        **marked(mark),
    }


def _as_json(policy: Mapping[str, Any]) -> str:
    try:
        return json.dumps(policy, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise LoaderError(
            f"the state of a policy is no JSON ({error}): expected numbers, texts, lists and dicts with texts as keys. "
            "Change what its state_dict() returns."
        ) from error


def step_before(bill: Bill, plan: Plan, step: int) -> int:
    """Return the step of a batch that was yielded before a step; refuse any other bill."""
    if bill.step >= step or bill.batch_id != plan.batch_id(bill.epoch, bill.step):
        raise LoaderError(
            f"before={bill!r} is no batch that this loader yielded: it is at step {step}. Pass a bill of this run that "
            "was yielded since the last resume."
        )
    return bill.step


def marked(mark: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the keys of a state that name the attempt it is taken in."""
    return {key: (mark or NO_MARK)[key] for key in NO_MARK}


def loaded_mark(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the run, attempt and launch that a state was taken in, and its step, for ``Trackers.begin``."""
    fields = Fields({**NO_MARK, **state}, Origin("the state", ResumeError, _WAY_OUT))
    return fields.read(_MARK)


def refuse_stateful(state: Mapping[str, Any]) -> None:
    """Name the way for a state of torchdata's ``StatefulDataLoader``."""
    if "_iterator_finished" in state:
        raise ResumeError(
            "this is the state of torchdata's StatefulDataLoader: expected one of this loader's own state_dict(). "
            "Call lading.observe.import_stateful(state, loader), which moves the loader to where that one was."
        )


def read_state(state: Any) -> SavedState:
    """Return a state with every field checked; whatever is not as ``make_state`` wrote it is refused by name."""
    if not isinstance(state, Mapping):
        raise ResumeError(f"a loader state is a dict: found {type(state).__name__}. Pass what state_dict() returned.")
    refuse_stateful(state)
    missing = [key for key in ("version", *_STATE, *_MARK) if key not in state]
    if missing:
        raise ResumeError(
            f"the state lacks {', '.join(missing)}; it has {', '.join(map(str, state)) or 'nothing'}. {_WAY_OUT}"
        )
    fields = Fields(state, Origin("the state", ResumeError, _WAY_OUT))
    version = fields.integer("version")
    if version != STATE_VERSION:
        raise ResumeError(
            f"the state has version {version}, this Lading reads {STATE_VERSION}. "
            "Load it with the Lading that saved it."
        )
    values = fields.read(_STATE)
    return SavedState(
        **{name: value for name, value in values.items() if name not in _UNUSED},
        sizes=_inner(fields, "summary").read(_SIZE_FIELDS),
        mark=loaded_mark(state),
    )


def restored_plan(saved: SavedState, plan: Plan, allowed: Resume, *, resizes: bool = False) -> Plan:
    """Return the plan that resumes from a state.

    Args:
        plan: The plan of the loader that loads it, without events.
        resizes: Whether a policy chooses the size of chunks: it is then the saved one.
    """
    if not allowed.changed_plan:
        version = saved.summary.get("order_version")
        check_order_version("the state", version, ResumeError, f", or {_ANYWAY}: {_UNEVEN}")
    changed = differences(saved.summary, summary(plan))
    order_changes = [text for field, text in changed if field not in _SIZES]
    if order_changes and not allowed.changed_plan:
        raise ResumeError(
            f"the saved plan differs in {len(order_changes)} place{'s' * (len(order_changes) > 1)}: "
            f"{', '.join(order_changes)}. {_UNEVEN[0].upper()}{_UNEVEN[1:]}. {_ANYWAY[0].upper()}{_ANYWAY[1:]}."
        )
    if order_changes:  # another order: the same step of it comes next
        return plan
    try:
        adapts = plan.adaptation
        events = saved.events if adapts is None else tuple(map(adapts.resolved, saved.events))
        original = replace(plan, **saved.sizes, events=events)
        return _rebatched(original, plan, saved, allowed, resizes=resizes)
    except ResumeError:
        raise
    except LadingError as error:
        raise ResumeError(f"the events in the state are damaged: {error} Take an older checkpoint.") from error


def _rebatched(original: Plan, wanted: Plan, saved: SavedState, allowed: Resume, *, resizes: bool) -> Plan:
    step, at = saved.step, original.locate(saved.step)
    if at.position != saved.position or at.epoch != saved.epoch:
        raise ResumeError(
            f"the state says position {saved.position} in epoch {saved.epoch} for step {step}, its plan says "
            f"{at.position} in epoch {at.epoch}: it is damaged. Take an older checkpoint."
        )
    now, new = original.clock.pace_at(step), wanted.clock.pace_at(step)
    if (now.batch, now.later) != (new.batch, new.later) and not allowed.rebatch:
        raise ResumeError(
            f"the saved run has global batches of {now.batch} samples, this loader makes {new.batch}. Keep "
            f"global_batch_size={now.batch} (any number of ranks may share it), or pass on_resume=Resume(rebatch=True) "
            "to continue with the new size."
        )
    keeps = resizes or bool(original.chunk_schedule)  # sizes that change by themselves are not asked for again
    chunks = now.chunk_batches if keeps else new.chunk_batches
    if (now.batch, now.later, now.chunk_batches) == (new.batch, new.later, chunks):
        return original
    changed = original if original.adaptation is None else original.adaptation.resized(original, step)
    return changed.with_event(Rebatch(step, at.epoch, at.offset, new.batch, chunks, new.later))


def _inner(fields: Fields, key: str) -> Fields:
    """Return the fields of the JSON object inside a string."""
    text = fields.text(key, longest=_LONGEST)
    return Origin(f"the state: {key}", ResumeError, _WAY_OUT).record(text)


def _summary(fields: Fields, key: str) -> dict[str, Any]:
    """Return the summary of a plan, as far as it is compared: its datasets must be a list of lists, or a short form."""
    shape = _inner(fields, key)
    if isinstance(shape.value("datasets"), Mapping):
        shape.record("datasets").read({"count": SIZE, "fingerprint": Fields.text})
    else:
        tuple_of(_dataset, least=1)(shape, "datasets")
    return {key: shape.value(key) for key in shape}


def _dataset(items: Fields, i: int) -> None:
    row = items.items(i, least=3, most=4)
    row.text(0, longest=_LONGEST)
    row.integer(1, low=0)


def _events(fields: Fields, key: str) -> tuple[Event, ...]:
    origin = Origin(f"the state: {key}", ResumeError, _WAY_OUT)
    listed = origin.json(fields.text(key, longest=_LONGEST))
    if not isinstance(listed, list):
        origin.refuse("", "a list of events", type(listed).__name__)
    return tuple(read_event(Fields(event, origin, f"[{i}]")) for i, event in enumerate(listed))


def _policies(fields: Fields, key: str) -> dict[str, Any]:
    """Return what the policies remember; empty without one."""
    inner = _inner(fields, key)
    return _present(**inner.each({**_STEPS, **_POLICY, **_CHUNKS} if "kind" in inner else _CHUNKS))


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _ended(fields: Fields, name: str) -> list[int]:
    return list(fields.integers(name, low=0, least=5, most=5))


_STEPS: FieldTable = {"last_step": partial(Fields.integer, low=-1)}
_POLICY: FieldTable = {"kind": Fields.text, "state": named(Fields.value)}
_OF_CHUNKS: FieldTable = {
    **_STEPS,
    "ended": optional(_ended),
    "resize": given(record_of(dict, _POLICY)),
    "choose": given(record_of(dict, _POLICY)),
}
_CHUNKS: FieldTable = {"chunks": given(record_of(_present, _OF_CHUNKS))}
_STEP = partial(Fields.integer, low=0, high=_MOST_STEP)
_MARK: FieldTable = {
    "run": Fields.text,
    "attempt": partial(Fields.integer, low=-1),
    "launch": Fields.text,
    "step": _STEP,
}
_STATE: FieldTable = {
    "epoch": COUNT,
    "position": COUNT,
    "step": _STEP,
    "global_batch_size": Fields.value,
    "lookahead_steps": partial(Fields.integer, low=0, high=1 << 30),
    "plan": Fields.value,
    "summary": _summary,
    "events": _events,
    "policy": _policies,
}
_UNUSED = ("global_batch_size", "plan")  # for those who look at a state: its summary says the same
_SIZE_FIELDS: FieldTable = {"global_batch_size": SIZE, "batch_schedule": PAIRS, "chunk_batches": given(SIZE)}
