"""Two runs side by side: do they hold the same, and if not, from which step on?

Digests add and do not depend on the world size, so a run on 1 rank and a run
on 4 ranks are compared step by step, without a name being looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.report.asked import AskedRun
from lading.report.table import Table

_LISTED = 20
_USE_BITS = 48  # a step that was used twice is compared use by use


@dataclass(frozen=True)
class Comparison:
    """How two runs differ.

    Attributes:
        equal: Whether both have the same steps with the same content.
        common_steps: Steps that both recorded.
        steps: Steps of each.
        digests: Sum of the digests of each, as hex.
        first_difference: First step that differs, or that only one of them has.
        differing_steps: Number of common steps that differ.
        kind: ``names``, ``fates`` (applied in one, skipped in the other), ``content`` or ``length``; ``nothing`` where
            neither has a step; None where they are equal.
        plan_differences: How the plans differ.
        samples: What the first differing step holds in the one and not in the other.
    """

    equal: bool
    common_steps: int
    steps: tuple[int, int]
    digests: tuple[str, str]
    first_difference: int | None
    differing_steps: int
    kind: str | None
    plan_differences: list[str]
    samples: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return dict(vars(self))


def compare(left: AskedRun, right: AskedRun) -> Comparison:
    """Compare two runs step by step."""
    mine, other = (_columns(run.history) for run in (left, right))
    common, a, b = np.intersect1d(mine["step"], other["step"], return_indices=True)
    differs, kind = mine["digest"][a] != other["digest"][b], None
    fates = mine["applied"][a] != other["applied"][b]
    if differs.any() or fates.any():
        kind = "names" if differs.any() else "fates"
        differs = differs | fates
    elif mine["has_content"] and other["has_content"]:
        differs = mine["content"][a] != other["content"][b]
        kind = "content" if differs.any() else None
    if kind is not None:
        first: int | None = int(common[np.argmax(differs)]) % (1 << _USE_BITS)
    else:
        lone = np.setxor1d(mine["step"], other["step"])
        first = int(lone[0]) % (1 << _USE_BITS) if len(lone) else None
        kind = "length" if len(lone) else None if len(common) else "nothing"
    plans = (left.plan, right.plan)
    return Comparison(
        equal=kind is None,
        common_steps=len(common),
        steps=(len(mine["step"]), len(other["step"])),
        digests=(_total(mine), _total(other)),
        first_difference=first,
        differing_steps=int(np.count_nonzero(differs)),
        kind=kind,
        plan_differences=plans[0].differences(plans[1]) if plans[0] is not None and plans[1] is not None else [],
        samples=_differing_samples(left, right, first, kind) if first is not None and kind is not None else [],
    )


def _columns(history: Table) -> dict[str, Any]:
    table = history.arrow
    content = table["content"]
    return {
        "step": table["step"].to_numpy() + (_uses(table["step"].to_numpy()) << _USE_BITS),
        "digest": table["digest"].to_numpy(),
        "applied": np.array([fate == "applied" for fate in table["fate"].to_pylist()], dtype=bool),
        "has_content": len(table) > 0 and content.null_count == 0,
        "content": content.fill_null(0).to_numpy(),
    }


def _uses(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how often each step was used before, in order of use."""
    order = np.argsort(steps, kind="stable")
    first = np.flatnonzero(np.diff(steps[order], prepend=-1))
    uses = np.empty(len(steps), dtype=np.int64)
    uses[order] = np.arange(len(steps)) - np.repeat(first, np.diff(first, append=len(steps)))
    return uses


def _total(columns: dict[str, Any]) -> str:
    return f"{int(columns['digest'].sum(dtype=np.uint64)):016x}"


def _differing_samples(left: AskedRun, right: AskedRun, step: int, kind: str) -> list[dict[str, Any]]:
    if kind in ("length", "fates"):
        return []
    sides = []
    for run in (left, right):
        rows = run.step(step).samples.dicts()
        content = run.content_of(step) if kind == "content" else {}
        sides.append({row["slot"]: (row["name"], row["index"], content.get(row["slot"])) for row in rows})
    slots = sorted({*sides[0], *sides[1]})
    found = []
    for slot in slots:
        one, two = (side.get(slot) for side in sides)
        if one != two:
            found.append({"slot": slot, "left": _label(one), "right": _label(two)})
    return found[:_LISTED]


def _label(sample: tuple[str, int, int | None] | None) -> str | None:
    if sample is None:
        return None
    name, index, content = sample
    return f"{name}:{index}" + ("" if content is None else f" (bytes {content & (2**64 - 1):016x})")
