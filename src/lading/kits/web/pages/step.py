"""A step on one page: its samples, what each looks like, when it was used before and will be used again."""

from __future__ import annotations

from typing import Any

from lading.report.blocked import blocks_of
from lading.report.run import Run
from lading.report.where import newest_plan
from lading.source.looks import SourceLooks

_MOST_LOOKS = 1024  # rows that are described; of more the first


def step_page(run: Run, step: int, looks: SourceLooks | None = None) -> dict[str, Any]:
    """Return everything on the page of a step.

    Args:
        looks: Says what samples look like, where the sources are at hand.
    """
    found = run.explain(step, lengths=None if looks is None else looks.length)
    values = found.to_dict()
    seen = {row["slot"]: row for row in values.pop("exposures")}
    coming = _coming(run, step, values["samples"])
    own = _own_losses(values["samples"])
    rows = []
    for place, row in enumerate(values["samples"]):
        before = seen[row["slot"]]
        fields = {name: before[name] for name in ("earlier", "last_step", "length", "stands_out")}
        fields["next_step"] = coming[place]
        looked = looks.describe(row["name"], row["index"]) if looks is not None and place < _MOST_LOOKS else None
        rows.append({**row, **fields, **own[place], "description": looked})
    last = run.num_steps - 1
    return {
        **values,
        "samples": rows,
        "has_losses": any(row["loss"] is not None for row in rows),
        "previous_step": step - 1 if step > 0 else None,
        "following_step": step + 1 if step < last or run.plan is not None else None,
        "steps": run.num_steps,
    }


def _coming(run: Run, step: int, samples: list[dict[str, Any]]) -> list[int | None]:
    """Return the next step after a step at which the plan uses each sample, within an epoch."""
    plan = newest_plan(run.evidence)
    if plan is None:
        return [None] * len(samples)
    stop = step + 1 + plan.epoch_steps(plan.locate(step).epoch)
    blocked = blocks_of(run.evidence)
    found: list[int | None] = []
    for row in samples:
        if (row["dataset"], row["index"]) in blocked:
            found.append(None)
            continue
        places = plan.where(row["dataset"], row["index"], step + 1, stop)
        found.append(min((place.step for place in places), default=None))
    return found


def _own_losses(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the loss of each sample and its share of all, where training committed one for that row."""
    losses = [row.get("loss") for row in samples]
    total = sum(loss for loss in losses if loss is not None and loss == loss)
    return [{"loss": loss, "loss_share": loss / total if loss is not None and total > 0 else None} for loss in losses]
