"""A step on one page: its samples, what each looks like, when it was used before and will be used again."""

from __future__ import annotations

from typing import Any

from lading.kits.web.pages.looks import Looks, described
from lading.report.run import Run
from lading.report.where import newest_plan

_MOST_LOOKS = 1024  # rows that are described; of more the first


def step_page(run: Run, step: int, looks: Looks | None = None) -> dict[str, Any]:
    """Return everything on the page of a step.

    Args:
        run: The run.
        step: The step.
        looks: Says what samples look like, where the sources are at hand.
    """
    found = run.explain(step)
    values = found.to_dict()
    seen = {row["slot"]: row for row in values.pop("exposures")}
    coming = _coming(run, step, values["samples"])
    own = _own_losses(values["metrics"], values["samples"])
    rows = []
    for place, row in enumerate(values["samples"]):
        before = seen[row["slot"]]
        fields = {"earlier": before["earlier"], "last_step": before["last_step"], "next_step": coming[place]}
        looked = described(looks, row["name"], row["index"]) if place < _MOST_LOOKS else None
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
    found = []
    for row in samples:
        places = plan.where(row["dataset"], row["index"], step + 1, stop)
        found.append(min((place.step for place in places), default=None))
    return found


def _own_losses(metrics: dict[str, float], samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the loss of each sample and its share of all, where training committed them.

    A metric ``loss/<dataset>:<index>`` is a sample's own, ``loss/<dataset>`` that of its dataset in this step.
    """
    losses = [metrics.get(f"loss/{row['name']}:{row['index']}", metrics.get(f"loss/{row['name']}")) for row in samples]
    total = sum(loss for loss in losses if loss is not None and loss == loss)
    return [{"loss": loss, "loss_share": loss / total if loss is not None and total > 0 else None} for loss in losses]
