"""A run on one page: loss, spikes, shares against the plan, datasets, attempts, bad samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.kits.web.pages.checkpoint import MOST_LISTED, saved_checkpoints
from lading.kits.web.pages.looks import Looks, described
from lading.kits.web.pages.rollouts import rollouts_along
from lading.ledger.tables import APPLIED, SKIPPED
from lading.order.event import Reweight
from lading.report.history import NOTHING, time_of
from lading.report.run import Run
from lading.report.shares import step_shares
from lading.report.summary import Summary, run_state, summarise
from lading.report.suspects import exposures, ranked
from lading.report.verify.verdict import Progress, silent
from lading.report.where import fates_of

MOST_POINTS = 2000
MOST_DRAWN = 10  # datasets that a chart can tell apart
_MIX_PARTS = 60
_SPIKES_LISTED = 12
_SPIKES_MARKED = 200
_SAMPLES_LISTED = 6
_MOST_RANKED = 1024  # samples of a step whose earlier uses are looked up
_UNRANKED: dict[str, Any] = {"earlier": 0, "length": None, "loss": None, "stands_out": None}
_LEAST_ABOVE = 0.005  # of all samples of a step: less is no hint
_STEPS_LISTED = 25
_BAD_LISTED = 50
_MOST_CHANGES = 24


def run_page(run: Run, progress: Progress = silent, looks: Looks | None = None) -> dict[str, Any]:
    """Return everything on the page of a run.

    Args:
        run: The run.
        progress: Is told how far it is.
        looks: Says what samples look like, where the sources are at hand.
    """
    progress(0.1, "summary")
    summary = summarise(run)
    progress(0.3, "losses")
    losses = run.losses().arrow
    steps, values = losses["step"].to_numpy(), losses["loss"].to_numpy().astype(np.float64)
    found = run.spikes().dicts()
    progress(0.5, "mix")
    mixed = run.mix(max(1, math.ceil(run.num_steps / _MIX_PARTS))).dicts()
    progress(0.9, "steps")
    worst = run.samples_of([spike["step"] for spike in found[:_SPIKES_LISTED]])
    return {
        **summary.to_dict(),
        "state": run_state(run.evidence),
        "steps": run.num_steps,
        "loss": points(steps, values),
        "undone": _undone(run, summary),
        "spikes": [{**s, **_outstanding(run, s["step"], worst[s["step"]], looks)} for s in found[:_SPIKES_LISTED]],
        "spike_marks": [{"step": s["step"], "loss": s["loss"]} for s in found[:_SPIKES_MARKED]],
        "spike_count": len(found),
        "changes": weight_changes(run),
        "mix": _shares(run, mixed),
        "rollouts": rollouts_along(run),
        "checkpoints": (saved := saved_checkpoints(run))[-MOST_LISTED:],
        "checkpoint_count": len(saved),
        "bad": summary.bad[:_BAD_LISTED],
        "bad_count": len(summary.bad),
        "blocked": summary.blocked[:_BAD_LISTED],
        "blocked_count": len(summary.blocked),
        "skipped": summary.skipped[:_BAD_LISTED],
        "last_steps": last_steps(run, _STEPS_LISTED),
    }


def thinned(steps: NDArray[Any], values: NDArray[np.float64], most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Return the places of at most so many points; of each bucket the lowest and the highest: no peak is lost."""
    if len(steps) <= most:
        return np.arange(len(steps))
    size = -(-len(steps) // (most // 2))
    whole = np.full(-(-len(steps) // size) * size, np.nan)
    whole[: len(values)] = np.where(np.isfinite(values), values, np.nan)
    buckets = whole.reshape(-1, size)
    first = np.arange(len(buckets)) * size
    low = np.argmin(np.where(np.isnan(buckets), np.inf, buckets), axis=1) + first
    high = np.argmax(np.where(np.isnan(buckets), -np.inf, buckets), axis=1) + first
    return np.unique(np.concatenate([low, high]))


def points(steps: NDArray[Any], values: NDArray[np.float64]) -> dict[str, list[Any]]:
    """Return steps and losses as a chart draws them."""
    chosen = thinned(steps, values)
    return {
        "step": steps[chosen].tolist(),
        "loss": [rounded(v) if math.isfinite(v) else None for v in values[chosen].tolist()],
    }


def rounded(value: float) -> float:
    """Return a number with the digits that a picture can show."""
    return float(f"{value:.5g}")


def _undone(run: Run, summary: Summary) -> list[dict[str, Any]]:
    """Return the losses of what was undone, attempt by attempt."""
    if not any(a["rolled_back"] or a["left_behind"] for a in summary.attempts):
        return []
    table = run.undone_losses().arrow
    attempts = table["attempt"].to_numpy()
    found = []
    for attempt in np.unique(attempts).tolist():
        mine = table.filter(attempts == attempt)
        steps, values = mine["step"].to_numpy(), mine["loss"].to_numpy().astype(np.float64)
        found.append({"attempt": attempt, **points(steps, values)})
    return found


def _outstanding(run: Run, step: int, rows: list[dict[str, Any]], looks: Looks | None) -> dict[str, Any]:
    """Return which datasets a step has more of than was to be expected there, and the samples that stand out most."""
    shares = step_shares(run, step, [row["name"] for row in rows])
    above = [row for row in shares if row["usual"] is not None and row["share"] - row["usual"] > _LEAST_ABOVE]
    above.sort(key=lambda row: row["usual"] - row["share"])
    known = exposures(run, step, rows) if len(rows) <= _MOST_RANKED else [{**row, **_UNRANKED} for row in rows]
    by_slot = {row["slot"]: row for row in rows}
    named = [(by_slot[row["slot"]], row) for row in ranked(known)[:_SAMPLES_LISTED]]
    return {
        "outstanding": [{k: row[k] for k in ("dataset", "share", "usual")} for row in above[:3]],
        "samples": [
            {
                **{k: row[k] for k in ("dataset", "name", "index")},
                **{k: stands[k] for k in ("loss", "stands_out")},
                "description": described(looks, row["name"], row["index"]),
            }
            for row, stands in named
        ],
        "sample_count": len(rows),
    }


def weight_changes(run: Run) -> list[dict[str, Any]]:
    """Return the steps at which the weights of the mixture changed; none where a schedule changes them all the time."""
    plan = run.plan
    if plan is None or plan.mixture is None:
        return []
    planned = [plan.clock.step_from(start) for start, _ in plan.mixture.stages[1:]]
    found = [{"step": step, "what": "planned"} for step in planned if step < run.num_steps]
    made = [event for event in plan.events if isinstance(event, Reweight)]
    found += [{"step": e.step, "what": e.reason or "reweighted"} for e in made if e.step < run.num_steps]
    return sorted(found, key=lambda change: change["step"]) if len(found) <= _MOST_CHANGES else []


def _shares(run: Run, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares of the largest datasets along the run, and of all others together."""
    groups = {row["group"]: (row["first_step"], row["last_step"]) for row in rows}
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["dataset"]] = totals.get(row["dataset"], 0) + row["samples"]
    ranked = sorted(totals, key=lambda name: -totals[name])
    drawn = ranked if len(ranked) <= MOST_DRAWN else ranked[: MOST_DRAWN - 1]
    by_dataset: dict[str, list[dict[str, Any]]] = {name: [] for name in drawn}
    rest: list[list[float | None]] = [[0.0, 0.0] for _ in groups]
    places = {group: place for place, group in enumerate(groups)}
    for row in rows:
        if row["dataset"] in by_dataset:
            by_dataset[row["dataset"]].append(row)
        else:
            place = rest[places[row["group"]]]
            place[0] = (place[0] or 0.0) + row["share"]
            place[1] = None if row["planned"] is None or place[1] is None else place[1] + row["planned"]
    order = {name: number for number, (_, name) in enumerate(run.named_datasets)}
    found = [
        {
            "dataset": name,
            "colour": order[name] % MOST_DRAWN if len(ranked) <= MOST_DRAWN else place,
            "share": [rounded(row["share"]) for row in by_dataset[name]],
            "planned": _known([row["planned"] for row in by_dataset[name]]),
        }
        for place, name in enumerate(drawn)
    ]
    if len(drawn) < len(ranked):
        share, planned = [rounded(pair[0] or 0.0) for pair in rest], _known([pair[1] for pair in rest])
        others: dict[str, Any] = {"dataset": f"{len(ranked) - len(drawn)} others", "colour": MOST_DRAWN}
        found.append({**others, "share": share, "planned": planned})
    return {
        "first_step": [first for first, _ in groups.values()],
        "last_step": [last for _, last in groups.values()],
        "datasets": found,
    }


def _known(values: list[float | None]) -> list[float] | None:
    return [rounded(v) for v in values if v is not None] if all(v is not None for v in values) else None


def last_steps(run: Run, count: int, before: int | None = None) -> list[dict[str, Any]]:
    """Return the last steps of history, or those before a step, the newest first.

    Args:
        run: The run.
        count: How many.
        before: Only steps below it.
    """
    bound = run.num_steps if before is None else before
    kept = run.steps.kept
    below = np.flatnonzero(kept["step"] < bound)
    newest = below[np.lexsort([kept["attempt"][below], kept["step"][below]])[::-1][:count]].tolist()
    unused = {int(kept["step"][row]) for row in newest if not kept["applied"][row]}
    known = fates_of(run.evidence, unused) if unused else {}
    rows = []
    for row in newest:
        found: dict[str, Any] = {n: int(kept[n][row]) for n in ("step", "epoch", "samples", "attempt")}
        key = (found["attempt"], found["step"])
        update, applied = int(kept["update"][row]), bool(kept["applied"][row])
        found |= {"update": None if update == NOTHING else update, "time": time_of(int(kept["time"][row]))}
        found |= {"fate": APPLIED if applied else SKIPPED, "reason": None if applied else known[key]["reason"]}
        rows.append({**found, "loss": float(kept["loss"][row]) if kept["losses"][row] else None})
    return rows
