"""A run on one page: loss, spikes, shares against the plan, datasets, attempts, bad samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from lading.kits.web.pages.checkpoint import MOST_LISTED, saved_checkpoints
from lading.kits.web.pages.curves import MOST_LINES, part_steps, points, rounded, undone_lines
from lading.kits.web.pages.rollouts import rollouts_along
from lading.kits.web.pages.stretch import strip
from lading.order.event import Reweight
from lading.report.length import length
from lading.report.mix import weighs_tokens
from lading.report.run import Run
from lading.report.shares import step_shares
from lading.report.summary import run_state, summarise
from lading.report.suspects import exposures, ranked
from lading.runtime.blocks.progress import Progress, silent
from lading.source.looks import SourceLooks

MOST_DRAWN = MOST_LINES
_SPIKES_LISTED = 12
_SPIKES_MARKED = 200
_SAMPLES_LISTED = 6
_MOST_RANKED = 1024  # samples of a step whose earlier uses are looked up
_UNRANKED: dict[str, Any] = {"earlier": 0, "length": None, "loss": None, "stands_out": None}
_LEAST_ABOVE = 0.005  # of all samples of a step: less is no hint
_BAD_LISTED = 50
_MOST_CHANGES = 24


def run_page(
    run: Run, progress: Progress = silent, looks: SourceLooks | None = None, *, whole: bool = True
) -> dict[str, Any]:
    """Return everything on the page of a run.

    Args:
        progress: Is told how far it is.
        looks: Says what samples look like, where the sources are at hand.
        whole: Also what takes longest of a long run: its spikes, its shares along the run, its rollouts.
    """
    progress(0.1, "summary")
    summary = summarise(run)
    progress(0.3, "losses")
    losses = run.losses().arrow
    steps, values = losses["step"].to_numpy(), losses["loss"].to_numpy().astype(np.float64)
    found = run.spikes().dicts() if whole else []
    progress(0.5, "mix")
    mixed = run.mix(part_steps(run)).dicts() if whole else []
    progress(0.9, "steps")
    worst = run.samples_of([spike["step"] for spike in found[:_SPIKES_LISTED]]) if found else {}
    return {
        **summary.to_dict(),
        "state": run_state(run.evidence),
        "steps": run.num_steps,
        "length": length(run),
        "digest": f"{int(run.steps.kept['digest'].sum(dtype=np.uint64)):016x}" if len(run.steps.kept["step"]) else None,
        "head": run.evidence.log.head,
        "plans": list(run.evidence.plans),
        "loss": points(steps, values),
        "undone": undone_lines(run),
        "spikes": [{**s, **_outstanding(run, s["step"], worst[s["step"]], looks)} for s in found[:_SPIKES_LISTED]],
        "spike_marks": [{"step": s["step"], "loss": s["loss"]} for s in found[:_SPIKES_MARKED]],
        "spike_count": len(found),
        "changes": weight_changes(run),
        "mix": _shares(run, mixed),
        "rollouts": rollouts_along(run) if whole else None,
        "checkpoints": (saved := saved_checkpoints(run))[-MOST_LISTED:],
        "checkpoint_count": len(saved),
        "bad": summary.bad[:_BAD_LISTED],
        "bad_count": len(summary.bad),
        "blocked": summary.blocked[:_BAD_LISTED],
        "blocked_count": len(summary.blocked),
        "skipped": summary.skipped[:_BAD_LISTED],
        "strip": strip(run, spikes=[spike["step"] for spike in found]),
    }


def _outstanding(run: Run, step: int, rows: list[dict[str, Any]], looks: SourceLooks | None) -> dict[str, Any]:
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
                "description": None if looks is None else looks.describe(row["name"], row["index"]),
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
    """Return the shares of the largest datasets along the run, and of all others together; in tokens if weights are."""
    if in_tokens := weighs_tokens(rows):
        rows = [{**row, "share": row["token_share"], "planned": row["token_planned"]} for row in rows]
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
        "unit": "tokens" if in_tokens else "samples",
        "datasets": found,
    }


def _known(values: list[float | None]) -> list[float] | None:
    return [rounded(v) for v in values if v is not None] if all(v is not None for v in values) else None
