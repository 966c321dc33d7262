"""Two runs on one page: from which step on they differ, in what, and their losses above each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from lading.kits.web.pages.curves import points
from lading.report.run import Run


def compare_page(left: Run, right: Run) -> dict[str, Any]:
    """Return everything on the page that compares two runs."""
    found = left.compare(right)
    losses = []
    for run in (left, right):
        table = run.losses().arrow
        losses.append(points(table["step"].to_numpy(), table["loss"].to_numpy().astype(np.float64)))
    return {**found.to_dict(), "losses": losses, "num_steps": max(left.num_steps, right.num_steps)}
