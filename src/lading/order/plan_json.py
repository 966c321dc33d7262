"""A plan as JSON, and what differs between two of them.

The *summary* is the short form that travels in every loader state: under 1 kB
however many datasets there are, and enough to name what changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lading.errors import PlanError
from lading.identity import fingerprint
from lading.order.dataset import Part, PlannedDataset
from lading.order.event import event_from_dict, event_to_dict
from lading.order.mixture.spec import MixtureSpec
from lading.order.permutation import ORDER_VERSION

if TYPE_CHECKING:
    from lading.order.plan import Plan

PLAN_VERSION = 1
_LISTED_BYTES = 600

_WORDS = {
    "order_version": "order version",
    "seed": "seed",
    "shuffle": "shuffle",
    "block_samples": "block size",
    "drop_last": "drop_last",
    "mixture": "weights or schedule (fingerprint)",
    "global_batch_size": "global batch size",
    "chunk_batches": "chunk size",
}


def description(plan: Plan) -> dict[str, Any]:
    """Return everything that defines the order, events left out."""
    return {
        "lading_plan": PLAN_VERSION,
        "order_version": ORDER_VERSION,
        "datasets": [{k: v for k, v in d.items() if k != "location"} for d in _datasets(plan)],
        "global_batch_size": plan.global_batch_size,
        "seed": plan.seed,
        "shuffle": plan.shuffle,
        "block_samples": plan.block_samples if plan.shuffle == "block" else None,
        "drop_last": plan.drop_last,
        "chunk_batches": plan.chunk_batches,
        "mixture": plan.mixture.to_dict() if plan.mixture else None,
    }


def to_json(plan: Plan) -> str:
    """Return the plan, events included, as JSON."""
    events = [event_to_dict(e) for e in plan.events]
    return json.dumps({**description(plan), "datasets": _datasets(plan), "events": events})


def _datasets(plan: Plan) -> list[dict[str, Any]]:
    """Return what is known of each source; parts only where there are some."""
    whole = [{k: v for k, v in asdict(d).items() if v is not None} for d in plan.datasets]
    for fields in whole:
        parts = [{k: v for k, v in part.items() if k != "first" or v} for part in fields.pop("parts")]
        if parts:
            fields["parts"] = parts
    return whole


def _dataset(fields: Mapping[str, Any]) -> PlannedDataset:
    parts = tuple(Part(**part) for part in fields.get("parts", ()))
    return PlannedDataset(**{**fields, "parts": parts})


def fields_from_json(text: str) -> dict[str, Any]:
    """Return the fields of the plan that ``to_json`` wrote."""
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise PlanError(f"this is no JSON: {error}. Expected the text that plan.to_json() wrote.") from error
    if not isinstance(fields, dict) or fields.get("lading_plan") != PLAN_VERSION:
        found = fields.get("lading_plan") if isinstance(fields, dict) else type(fields).__name__
        raise PlanError(f"plan version {found!r} found, {PLAN_VERSION} expected. Was it written by another Lading?")
    if fields["order_version"] != ORDER_VERSION:
        raise PlanError(
            f"the plan has order version {fields['order_version']}, this Lading computes {ORDER_VERSION}: "
            "its samples would come in another order. Use the Lading that wrote it."
        )
    simple = ("global_batch_size", "seed", "shuffle", "drop_last", "chunk_batches")
    mixture, block_samples = fields["mixture"], fields["block_samples"]
    return {
        **{name: fields[name] for name in simple},
        **({"block_samples": block_samples} if block_samples else {}),
        "datasets": tuple(map(_dataset, fields["datasets"])),
        "mixture": MixtureSpec.from_dict(mixture) if mixture else None,
        "events": tuple(event_from_dict(e) for e in fields.get("events", [])),
    }


def summary(plan: Plan) -> dict[str, Any]:
    """Return the short form of a plan that travels in loader states."""
    whole = description(plan)
    datasets = [[d.name, d.length, d.fingerprint, *_parts_print(d)] for d in plan.datasets]
    whole["mixture"] = fingerprint(whole["mixture"]) if plan.mixture else None
    listed = len(json.dumps(datasets)) <= _LISTED_BYTES
    whole["datasets"] = datasets if listed else {"count": len(datasets), "fingerprint": fingerprint(datasets)}
    return whole


def _parts_print(dataset: PlannedDataset) -> list[str]:
    return [fingerprint([list(asdict(part).values()) for part in dataset.parts])] if dataset.parts else []


def differences(saved: Mapping[str, Any], found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (field, sentence) for every difference between two summaries."""
    changed = [
        (field, f"{word} {saved.get(field)} -> {found.get(field)}")
        for field, word in _WORDS.items()
        if saved.get(field) != found.get(field)
    ]
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
            texts.append(f"dataset {name!r} {_spaced(old[name][0])} -> {_spaced(new[name][0])} samples")
        elif old[name][1] != new[name][1]:
            texts.append(f"dataset {name!r} content {old[name][1] or 'unknown'} -> {new[name][1] or 'unknown'}")
        elif old[name][2:] != new[name][2:]:
            texts.append(f"dataset {name!r} has other parts, or other numbers for them")
    return texts or ["the order of the datasets"]


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")
