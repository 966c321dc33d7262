"""What a step holds of each dataset, against what was to be expected of *this* step.

full shuffle, curriculum    the plan's shares at the step; a step differs from them by chance
weights, windows, chunks    the plan fixes what a step holds: nothing to compare
no plan                     the steps before it, as for losses
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.order.counts import planned_counts
from lading.report.asked import AskedRun
from lading.report.losses import SPIKE_WINDOW
from lading.report.table import schema_of

SHARES = schema_of("dataset string, samples int64, share float64, usual float64, ratio float64")


def step_shares(run: AskedRun, step: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return samples, share, usual share and their ratio of each dataset in a step; ``usual`` may be None.

    Args:
        names: The dataset of each of its samples.
    """
    usual, rows = expected_shares(run, step), []
    for number, name in run.named_datasets:
        count = names.count(name)
        share, normal = count / max(len(names), 1), None if usual is None else float(usual[number])
        ratio = share / normal if normal else None
        rows.append({"dataset": name, "samples": count, "share": share, "usual": normal, "ratio": ratio})
    return rows


def expected_shares(run: AskedRun, step: int) -> NDArray[np.float64] | None:
    """Return what was to be expected of each dataset, by number, at a step; None where the plan fixes it."""
    owner = run.evidence.owner(step)
    plan = run.plan if owner is None else run.evidence.plan(owner)
    counts: NDArray[Any]
    if plan is None:
        counts = run.counts_between(max(step - SPIKE_WINDOW, 0), step)
    elif plan.mixture is None and plan.shuffle == "full" and (plan.adaptation is None or plan.adaptation.by_chance):
        counts = planned_counts(plan, np.array([step], dtype=np.int64))
    else:
        return None
    found = np.zeros(len(run.datasets))
    found[: len(counts)] = counts
    return found / found.sum() if found.sum() else None
