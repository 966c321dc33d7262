"""The rollouts of a run on its page, and those of a prompt on the page of the sample.

along the run    fates of what was made in each stretch of steps, ages of what was used there, mean rewards
a prompt         its groups, the newest first: policy, rewards, ages, fates
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.report.bias import p_of_dropping, says
from lading.report.history import NOTHING
from lading.report.rollouts import FATES, RolloutHistory
from lading.report.run import Run

I64 = NDArray[np.int64]

_PARTS = 60
_MOST_GROUPS = 50


def rollouts_along(run: Run) -> dict[str, Any] | None:
    """Return fates, ages and rewards along a run, as charts draw them; None where nothing was rolled out."""
    if not run.evidence.has_rows("rollouts"):
        return None
    history = run.rollout_history
    made, standing = history.made, history.standing
    count = len(made["rollout"])
    if not count:
        return None
    steps = np.minimum(made["step"], max(run.num_steps - 1, 0))  # what came after the last step is shown with it
    size = math.ceil(max(run.num_steps, 1) / _PARTS)
    decided = standing["fate"] <= FATES.index("filtered")
    seconds, dropped = made["seconds"][decided], standing["fate"][decided] > 0
    words = zip(standing["fate"].tolist(), standing["reason"].tolist(), strict=True)
    totals = sorted(Counter(words).items(), key=lambda item: (item[0][0], -item[1]))
    return {
        "made": count,
        "groups": len(np.unique(made["group"])),
        "totals": [{"fate": FATES[f], "reason": r, "rollouts": n, "share": n / count} for (f, r), n in totals],
        "fates": _fates(steps // size * size, standing["fate"]),
        "ages": _ages(history, size),
        "rewards": _means(steps // size * size, made["reward"]),
        "says": says(p_of_dropping(made["group"][decided], seconds, dropped)),
    }


def groups_of(run: Run, dataset: int, index: int) -> list[dict[str, Any]]:
    """Return the groups of a prompt, the newest first, each with its rollouts."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in run.rollouts(dataset, index).dicts():
        groups.setdefault(row["group"], []).append(row)
    found = []
    for _, rows in sorted(groups.items(), reverse=True)[:_MOST_GROUPS]:
        known = [row["reward"] for row in rows if row["reward"] is not None]
        found.append(
            {
                **{name: rows[0][name] for name in ("group", "policy", "step", "attempt")},
                "reward": sum(known) / len(known) if known else None,
                "fates": dict(Counter(row["fate"] for row in rows)),
                "rollouts": rows,
            }
        )
    return found


def _fates(steps: I64, fates: I64) -> dict[str, Any]:
    """Return the share of each fate in what was made in each stretch; fates that nothing has are left out."""
    starts, place = np.unique(steps, return_inverse=True)
    counts = np.bincount(place * len(FATES) + fates, minlength=len(starts) * len(FATES)).reshape(-1, len(FATES))
    shares = counts / counts.sum(axis=1, keepdims=True)
    lines = [{"fate": FATES[f], "share": shares[:, f].tolist()} for f in range(len(FATES)) if counts[:, f].any()]
    return {"step": starts.tolist(), "lines": lines}


def _ages(history: RolloutHistory, size: int) -> dict[str, Any]:
    """Return the mean and the highest age of what was used in each stretch of steps."""
    at, made = history.places(history.uses["rollout"]), history.made["policy"]
    good = (at >= 0) & (made[at] != NOTHING)
    ages = history.uses["update"][good] - made[at[good]]
    steps = history.uses["step"][good] // size * size
    starts, place = np.unique(steps, return_inverse=True)
    highest = np.zeros(len(starts), np.int64)
    np.maximum.at(highest, place, ages)
    return {**_means(steps, ages.astype(np.float64)), "highest": highest.tolist()}


def _means(steps: I64, values: NDArray[np.float64]) -> dict[str, list[Any]]:
    """Return the mean of what is known in each stretch of steps."""
    known = ~np.isnan(values)
    starts, place = np.unique(steps[known], return_inverse=True)
    return {"step": starts.tolist(), "mean": (np.bincount(place, values[known]) / np.bincount(place)).tolist()}
