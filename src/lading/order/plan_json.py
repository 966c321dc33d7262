"""A plan as JSON, and what differs between two of them.

The *summary* is the short form that travels in every loader state: under 1 kB
however many datasets there are, and enough to name what changed. The ranks of a run compare it, so that all have
one plan, or none of them starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lading.errors import LadingError, PlanError
from lading.identity import fingerprint
from lading.identity.world import agree, field_differences
from lading.order.dataset import Part, PlannedDataset
from lading.order.decided import KINDS, opened
from lading.order.event import PAIRS, Event, event_to_dict, read_event
from lading.order.mixture.spec import MixtureSpec
from lading.order.permutation import ORDER_VERSION
from lading.runtime.fields import (
    COUNT,
    SIZE,
    Fields,
    FieldTable,
    Origin,
    given,
    named,
    optional,
    record_of,
    spaced,
    tuple_of,
)

if TYPE_CHECKING:
    from lading.identity import World
    from lading.order.adaptation import Adaptation, PlanView
    from lading.order.sample_weights import SampleWeights

PLAN_VERSION = 1
LOOKAHEAD_STEPS = 32
WINDOW_SAMPLES = 4096
_LISTED_BYTES = 600
# Files keep the words of plan version 1: a window was a block there.
_WRITTEN = {"window": "block"}
_READ = {written: shuffle for shuffle, written in _WRITTEN.items()}
_VERSIONS = ("lading_plan", "order_version")

_WORDS = {
    "order_version": "order version",
    "seed": "seed",
    "shuffle": "shuffle",
    "block_samples": "window size",
    "drop_last": "drop_last",
    "mixture": "weights or schedule (fingerprint)",
    "epoch_samples": "samples of an epoch",
    "global_batch_size": "global batch size",
    "batch_schedule": "batch schedule",
    "chunk_batches": "chunk size",
    "chunk_schedule": "planned chunk sizes",
    "blocked": "samples blocked from the beginning (fingerprint)",
    "mask": "documents masked from the beginning (fingerprint)",
    "sample_weights": "sample weights (fingerprint)",
}


def description(plan: PlanView, datasets: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return everything that defines the order, events left out; ``datasets``: where they are described already."""
    known = _datasets(plan) if datasets is None else datasets
    schedule = {"batch_schedule": [list(point) for point in plan.batch_schedule]} if plan.batch_schedule else {}
    return {
        "lading_plan": PLAN_VERSION,
        "order_version": ORDER_VERSION,
        "datasets": [{k: v for k, v in d.items() if k != "location"} for d in known],
        "global_batch_size": plan.global_batch_size,
        **schedule,
        "seed": plan.seed,
        "shuffle": _WRITTEN.get(plan.shuffle, plan.shuffle),
        "block_samples": plan.window_samples if plan.shuffle == "window" else None,
        "drop_last": plan.drop_last,
        "chunk_batches": plan.chunk_batches,
        "mixture": plan.mixture.to_dict() if plan.mixture else None,
        **({"chunk_schedule": [list(point) for point in plan.chunk_schedule]} if plan.chunk_schedule else {}),
        **_adaptation(plan),
        **({"blocked": {name: list(indices) for name, indices in plan.blocked}} if plan.blocked else {}),
        **({"sample_weights": {name: w.to_dict() for name, w in plan.sample_weights}} if plan.sample_weights else {}),
        **({"mask": {name: list(documents) for name, documents in plan.masked}} if plan.masked else {}),
    }


def _adaptation(plan: PlanView, *, whole: bool = False) -> dict[str, Any]:
    """Return what adapts the order; plans without it keep their fingerprint."""
    adapts = plan.adaptation
    return {} if adapts is None else {adapts.key: adapts.to_dict(whole=whole)}


def to_dict(plan: PlanView, events: Sequence[Event]) -> dict[str, Any]:
    """Return everything that is kept of a plan, with some events, JSON-able."""
    # No part of what defines the order: it only says where events may act.
    lookahead = {} if plan.lookahead_steps == LOOKAHEAD_STEPS else {"lookahead_steps": plan.lookahead_steps}
    datasets = _datasets(plan)
    whole = {**description(plan, datasets), **_adaptation(plan, whole=True), **lookahead, "datasets": datasets}
    return {**whole, "events": [event_to_dict(e, whole=True) for e in events]}


def to_json(plan: PlanView) -> str:
    """Return the plan, events included, as JSON."""
    return json.dumps(to_dict(plan, plan.events))


def _datasets(plan: PlanView) -> list[dict[str, Any]]:
    """Return what is known of each source; parts only where there are some."""
    whole = [{k: v for k, v in asdict(d).items() if v is not None} for d in plan.datasets]
    for fields in whole:
        parts = [{k: v for k, v in part.items() if k != "first" or v} for part in fields.pop("parts")]
        if parts:
            fields["parts"] = parts
    return whole


def fields_from_json(text: str | bytes | Mapping[str, Any], beside: Path | None = None) -> dict[str, Any]:
    """Return the fields of the plan that ``to_json`` wrote; whatever is not as it wrote it is refused by name.

    Args:
        text: The text, or the object that was read from it.
        beside: Folder with the files of its sample weights.
    """
    origin = Origin("the plan", PlanError, "Expected the text that plan.to_json() wrote.")
    fields = Fields(text, origin) if isinstance(text, Mapping) else origin.record(text)
    if "lading_plan" not in fields or fields.value("lading_plan") != PLAN_VERSION:
        found = fields.value("lading_plan") if "lading_plan" in fields else None
        raise PlanError(f"plan version {found!r} found, {PLAN_VERSION} expected. Was it written by another Lading?")
    check_order_version("the plan", fields.value("order_version"), PlanError)
    values = fields.each(_PLAN, *_VERSIONS, *KINDS)
    weights = values.pop("sample_weights")
    names = {"mask": "masked", "block_samples": "window_samples"}
    return {
        **{names.get(name, name): value for name, value in values.items()},
        "adaptation": _read_adaptation(fields),
        "sample_weights": tuple((name, replace(table, folder=beside)) for name, table in weights.items()),
    }


def _read_adaptation(fields: Fields) -> Adaptation | None:
    """Return how the order of a plan adapts; None where it does not."""
    found = [key for key in KINDS if key in fields and fields.value(key) not in (None, False)]
    if len(found) > 1:
        fields.refuse(found[1], f"one of {', '.join(found)}")
    adaptation: Adaptation | None = opened(KINDS[found[0]]).read(fields) if found else None
    return adaptation


def check_order_version(thing: object, found: Any, error: type[LadingError], way_out: str = "") -> None:
    """Refuse what was planned with another shuffle than this Lading's."""
    if found != ORDER_VERSION:
        raise error(
            f"{thing} was made by a Lading that shuffles in another way: order version {found}, this one computes "
            f"{ORDER_VERSION}. The same seed would give other samples at every step. Use the Lading that made it"
            f"{way_out}."
        )


_TEXT = partial(Fields.text, longest=1 << 16)
_PART: FieldTable = {
    "number": COUNT,
    "name": _TEXT,
    "rows": COUNT,
    "samples": COUNT,
    "first": given(COUNT, 0),
}
_DATASET: FieldTable = {
    "name": _TEXT,
    "length": COUNT,
    "fingerprint": given(_TEXT, ""),
    "mean_tokens": given(Fields.number),
    "location": given(_TEXT),
    "parts": optional(tuple_of(record_of(Part, _PART)), ()),
}


def _shuffle(fields: Fields, name: str) -> str:
    return _READ.get(fields.text(name), fields.text(name))


def _blocked(fields: Fields, name: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(named(partial(Fields.integers, low=0, least=1))(fields, name).items())


def _weights(fields: Fields, name: str) -> SampleWeights:
    from lading.order.sample_weights import FIELDS, SampleWeights  # few runs weight their samples

    values = fields.record(name).each(FIELDS)
    return SampleWeights(values["total"], values["sha256"])


_PLAN: FieldTable = {
    "datasets": tuple_of(record_of(PlannedDataset, _DATASET)),
    "global_batch_size": SIZE,
    "batch_schedule": PAIRS,
    "seed": Fields.value,
    "shuffle": _shuffle,
    "block_samples": given(SIZE, WINDOW_SAMPLES),
    "drop_last": Fields.flag,
    "chunk_batches": given(SIZE),
    "mixture": given(lambda fields, name: MixtureSpec.read(fields.record(name))),
    "chunk_schedule": PAIRS,
    "blocked": given(_blocked, ()),
    "sample_weights": given(named(_weights), {}),
    "mask": given(_blocked, ()),
    "lookahead_steps": given(COUNT, LOOKAHEAD_STEPS),
    "events": optional(tuple_of(lambda items, i: read_event(items.record(i))), ()),
}


def summary(plan: PlanView) -> dict[str, Any]:
    """Return the short form of a plan that travels in loader states."""
    whole = description(plan)
    datasets = [[d.name, d.length, d.fingerprint, *_parts_print(d)] for d in plan.datasets]
    if plan.mixture is not None:
        whole["mixture"] = fingerprint({k: v for k, v in whole["mixture"].items() if k != "epoch_samples"})
        whole["epoch_samples"] = plan.mixture.epoch_samples
    if plan.adaptation is not None:
        whole[plan.adaptation.key] = plan.adaptation.summary()
    for name in ("blocked", "sample_weights", "mask"):
        if name in whole:
            whole[name] = fingerprint(whole[name])
    listed = len(json.dumps(datasets)) <= _LISTED_BYTES
    whole["datasets"] = datasets if listed else {"count": len(datasets), "fingerprint": fingerprint(datasets)}
    return whole


def _parts_print(dataset: PlannedDataset) -> list[str]:
    return [fingerprint([list(asdict(part).values()) for part in dataset.parts])] if dataset.parts else []


def differences(saved: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (field, sentence) for every difference between two summaries."""
    kinds = [key for key in KINDS if saved.get(key) != found.get(key)]
    words = {**_WORDS, **{key: opened(KINDS[key]).words for key in kinds}}
    changed = [
        (field, f"{word} {saved.get(field)} -> {found.get(field)}")
        for field, word in words.items()
        if saved.get(field) != found.get(field) and (field != "epoch_samples" or saved["datasets"] == found["datasets"])
    ]  # other lengths, another epoch: one difference, not two
    return [("datasets", text) for text in _dataset_differences(saved["datasets"], found["datasets"])] + changed


def _dataset_differences(saved: Any, found: Any) -> list[str]:
    if saved == found:
        return []
    if isinstance(saved, dict) or isinstance(found, dict):
        counts = [s["count"] if isinstance(s, dict) else len(s) for s in (saved, found)]
        return [f"datasets (too many to list: {counts[0]} -> {counts[1]}) differ in name, length or content"]
    old, new = ({name: tuple(rest) for name, *rest in side} for side in (saved, found))
    texts = [f"dataset {name!r} is gone" for name in old if name not in new]
    texts += [f"dataset {name!r} is new" for name in new if name not in old]
    for name in [n for n in old if n in new]:
        if old[name][0] != new[name][0]:
            texts.append(f"dataset {name!r} {spaced(old[name][0])} -> {spaced(new[name][0])} samples")
        elif old[name][1] != new[name][1]:
            texts.append(f"dataset {name!r} content {old[name][1] or 'unknown'} -> {new[name][1] or 'unknown'}")
        elif old[name][2:] != new[name][2:]:
            texts.append(f"dataset {name!r} has other parts, or other numbers for them")
    return texts or ["the order of the datasets"]


_OWN = ("next step", "events")  # beside the summary of the plan


def agree_on_plan(world: World, plan: PlanView, step: int) -> int:
    """Compare a loader's plan with rank 0's; all ranks raise the same WorldError if they differ, or all continue.

    For a loader to call when it starts its first iteration, and the first after a state was loaded: on every rank, not
    while it only peeks. See ``lading.identity.world.agree``.

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
