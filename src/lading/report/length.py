"""How long a run is, in steps, samples, epochs, tokens and hours, and how fast it goes.

Hours are those of training: what lay between two attempts is left out. Tokens are
known where the plan knows the mean of every dataset that was used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lading.order.plan import Plan

if TYPE_CHECKING:
    from lading.report.run import Run

_STEPS_TIMED = 500


def length(run: Run) -> dict[str, Any]:
    """Return samples, epochs, tokens and seconds, how many a second of late, and the steps to the end of the epoch."""
    kept = run.steps.kept
    samples, tokens = int(run.steps.applied["samples"].sum()), tokens_of(run)
    pace = _steps_per_second(kept["attempt"], kept["time"])
    per_step = None if pace is None or not len(kept["step"]) else pace / len(kept["step"])
    return {
        "samples": samples,
        "tokens": tokens,
        "seconds": round(all_seconds(kept["attempt"], kept["time"]), 3),
        "steps_per_second": pace,
        "samples_per_second": None if per_step is None else per_step * samples,
        "tokens_per_second": None if per_step is None or tokens is None else per_step * tokens,
        **_epochs(run.plan, run.num_steps),
    }


def trained_seconds(attempts: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the seconds of training before each step; ``times`` in milliseconds."""
    spent = np.diff(times, prepend=times[:1]) * (np.diff(attempts, prepend=attempts[:1]) == 0)
    total: NDArray[np.float64] = np.cumsum(np.maximum(spent, 0)) / 1000
    return total


def all_seconds(attempts: NDArray[np.int64], times: NDArray[np.int64]) -> float:
    """Return the seconds of training of all steps; where no clock was set back, between the ends of each attempt."""
    if not len(times):
        return 0.0
    ends = np.append(np.flatnonzero(attempts[1:] != attempts[:-1]), len(times) - 1)
    if np.count_nonzero(times[1:] < times[:-1]):
        return float(trained_seconds(attempts, times)[-1])
    starts = np.append(0, ends[:-1] + 1)
    return float((times[ends] - times[starts]).sum()) / 1000


def mean_tokens(run: Run) -> dict[str, float] | None:
    """Return the mean tokens of a sample of each dataset that was used; None where one of them is not known."""
    plan = run.plan
    known: dict[str, float | None] = {}
    for dataset in () if plan is None else plan.datasets:
        known |= {part.name: dataset.mean_tokens for part in dataset.parts or (dataset,)}
    used = [row["dataset"] for row in run.mix() if row["samples"]]
    found = {name: mean for name in used if (mean := known.get(name)) is not None}
    return found if used and len(found) == len(used) else None


def tokens_of(run: Run) -> int | None:
    """Return the tokens of all samples that updates used, by their means."""
    means = mean_tokens(run)
    return None if means is None else round(sum(row["samples"] * means.get(row["dataset"], 0.0) for row in run.mix()))


def _steps_per_second(attempts: NDArray[np.int64], times: NDArray[np.int64]) -> float | None:
    late = times[-_STEPS_TIMED:][attempts[-_STEPS_TIMED:] == attempts[-1:]]  # attempts follow each other
    spent = (int(late[-1]) - int(late[0])) / 1000 if len(late) > 1 else 0.0
    return (len(late) - 1) / spent if spent > 0 else None


def _epochs(plan: Plan | None, steps: int) -> dict[str, Any]:
    if plan is None:
        return {"epochs": None, "epoch_steps_left": None}
    epoch = plan.locate(max(steps - 1, 0)).epoch
    whole = max(plan.epoch_steps(epoch), 1)
    done = steps - plan.clock.epoch_start(epoch)
    return {"epochs": epoch + min(max(done / whole, 0.0), 1.0), "epoch_steps_left": max(whole - done, 0)}
