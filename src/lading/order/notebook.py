"""A plan as people see it: in a line, and in a notebook."""

from __future__ import annotations

from typing import Any

from lading.runtime.fields import html_table, shown_html

_SHOWN, _SHOWN_IN_LINE = 30, 4


def plan_html(plan: Any) -> str:
    weights = plan.mixture.stages[0][1] if plan.mixture is not None else plan.lengths
    total = max(sum(weights), 1)
    rows = [
        (dataset.name, dataset.length, f"{weight / total:.2%}")
        for dataset, weight in zip(plan.datasets[:_SHOWN], weights, strict=False)
    ]
    table = html_table(["dataset", "length", "share"], rows, more=len(plan.datasets) - _SHOWN, what="datasets")
    facts = f"batch {plan.global_batch_size}, seed {plan.seed}, {plan.epoch_steps(0)} steps in an epoch"
    return f"<p>Plan {shown_html(plan.fingerprint)}: {shown_html(facts)}</p>{table}"


def plan_text(plan: Any) -> str:
    sizes = {d.name: d.length for d in plan.datasets[:_SHOWN_IN_LINE]}
    left = len(plan.datasets) - _SHOWN_IN_LINE
    more = f" and {left} more" if left > 0 else ""
    kinds = [f"{len(plan.events)} event{'s' * (len(plan.events) > 1)}"] if plan.events else []
    kinds += ["mixed"] if plan.mixture is not None else []
    kinds += ["weighted samples"] if plan.sample_weights else []
    then = ", then others" if plan.chunk_schedule else ""
    kinds += [f"chunks of {plan.chunk_batches}{then}"] if plan.chunk_batches is not None else []
    kinds += [plan.adaptation.described] if plan.adaptation is not None else []
    rest = "".join(f", {kind}" for kind in kinds if kind)
    return (
        f"Plan({sizes}{more}, global_batch_size={plan.global_batch_size}, seed={plan.seed}, "
        f"shuffle={plan.shuffle!r}{rest}, {plan.fingerprint})"
    )
