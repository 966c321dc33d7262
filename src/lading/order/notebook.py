"""A plan as a notebook shows it: its datasets, and the share that each has at the start."""

from __future__ import annotations

from typing import Any

from lading.runtime.shown import html_table, shown_html

_SHOWN = 30


def plan_html(plan: Any) -> str:
    """Return a plan as HTML.

    Args:
        plan: The plan.
    """
    weights = plan.mixture.stages[0][1] if plan.mixture is not None else plan.lengths
    total = max(sum(weights), 1)
    rows = [
        (dataset.name, dataset.length, f"{weight / total:.2%}")
        for dataset, weight in zip(plan.datasets[:_SHOWN], weights, strict=False)
    ]
    table = html_table(["dataset", "length", "share"], rows, more=len(plan.datasets) - _SHOWN, what="datasets")
    facts = f"batch {plan.global_batch_size}, seed {plan.seed}, {plan.epoch_steps(0)} steps in an epoch"
    return f"<p>Plan {shown_html(plan.fingerprint)}: {shown_html(facts)}</p>{table}"
