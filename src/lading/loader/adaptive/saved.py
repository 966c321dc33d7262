"""What a state keeps of policies, every field checked."""

from __future__ import annotations

from typing import Any

from lading.runtime.fields import LONGEST_TEXT, Fields


def read_policies(fields: Fields) -> dict[str, Any]:
    """Return what the policies remember; empty without one."""
    chunks = fields.maybe(Fields.record, "chunks")
    kept = {} if chunks is None else {"chunks": _chunks(chunks)}
    if "kind" not in fields:
        fields.only("chunks")
        return kept
    fields.only("kind", "last_step", "state", "chunks")
    return {**kept, "last_step": fields.integer("last_step", low=-1), **_policy(fields)}


def _chunks(fields: Fields) -> dict[str, Any]:
    """Return what the policies of chunks remember."""
    fields.only("last_step", "resize", "choose", "ended")
    found: dict[str, Any] = {"last_step": fields.integer("last_step", low=-1)}
    if "ended" in fields:
        found["ended"] = fields.integers("ended", low=0, least=5, most=5)
    for name in ("resize", "choose"):
        policy = fields.maybe(Fields.record, name)
        if policy is not None:
            policy.only("kind", "state")
            found[name] = _policy(policy)
    return found


def _policy(fields: Fields) -> dict[str, Any]:
    state = fields.record("state")
    return {"kind": fields.text("kind", longest=LONGEST_TEXT), "state": {key: state.value(key) for key in state}}
