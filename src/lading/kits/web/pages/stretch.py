"""A stretch of a run: every step as a cell of a strip, and on a page of its own its shares and its samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ConfigError
from lading.order.counts import counts_of_steps, planned_counts
from lading.report.history import taken
from lading.report.run import Run
from lading.source.looks import SourceLooks

_CELLS = 120
_LISTED, _LOOKED_AT = 800, 200  # samples of a page: by name, and with what they look like


def strip(run: Run, first: int = 0, last: int | None = None, spikes: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Return the steps of a run, or of a stretch, as at most 120 cells: ``first``, ``last``, ``kind``, ``text``.

    Args:
        last: Last step; None: that of the run.
        spikes: Steps whose loss stands out.
    """
    stop = run.num_steps if last is None else last + 1
    size = max(1, -(-(stop - first) // _CELLS))
    steps, kept = run.steps.steps, run.steps.kept
    cells = -(-max(stop - first, 0) // size)

    def counted(chosen: NDArray[np.int64]) -> list[int]:
        ordered = chosen if np.all(chosen[1:] >= chosen[:-1]) else np.sort(chosen)  # in order, as a rule
        edges = np.minimum(first + size * np.arange(cells + 1), stop)
        found: list[int] = np.diff(np.searchsorted(ordered, edges)).tolist()
        return found

    counts = {
        "spike": counted(np.array(sorted(spikes), dtype=np.int64)),
        "skipped": counted(kept["step"][~kept["applied"]]),
        "undone": counted(steps["step"][~steps["owned"]]),
        "applied": counted(run.steps.applied["step"]),
    }
    found = []
    for cell in range(cells):
        here = {kind: values[cell] for kind, values in counts.items() if values[cell]}
        begin, end = first + cell * size, min(first + (cell + 1) * size, stop) - 1
        found.append(
            {"first": begin, "last": end, "kind": next(iter(here), "missing"), "text": _text(begin, end, here)}
        )
    return found


def _text(first: int, last: int, counts: dict[str, int]) -> str:
    said = {"spike": "a spike", "undone": "undone and done again"}
    if first == last:
        return f"step {first}: {', '.join(said.get(kind, kind) for kind in counts) or 'not recorded'}"
    words = {"spike": "spikes", "undone": "undone and done again"}
    return f"steps {first}–{last}: {', '.join(f'{n} {words.get(kind, kind)}' for kind, n in counts.items())}"


def stretch_page(
    run: Run, first: int, last: int, since: int | None = None, looks: SourceLooks | None = None
) -> dict[str, Any]:
    """Return everything on the page of a stretch: its losses, shares, spikes, and samples step by step.

    Args:
        since: Step whose samples are listed first; None: the first.
        looks: Says what samples look like, where the sources are at hand.
    """
    last = min(last, run.num_steps - 1)
    if not 0 <= first <= last:
        raise ConfigError(f"steps {first} to {last} of a run of {run.num_steps} steps: expected some that it recorded.")
    spikes = [row for row in run.spikes().dicts() if first <= row["step"] <= last]
    samples = _samples(run, max(first, min(since or first, last)), last, looks)
    return {
        "first": first,
        "last": last,
        "steps": run.num_steps,
        "loss": _losses(run, first, last),
        "strip": strip(run, first, last, [row["step"] for row in spikes]),
        "spikes": spikes[:12],
        "shares": _shares(run, first, last + 1),
        **samples,
    }


def _losses(run: Run, first: int, last: int) -> dict[str, Any] | None:
    table = run.losses().arrow
    steps, values = table["step"].to_numpy(), table["loss"].to_numpy()
    inside = (steps >= first) & (steps <= last) & np.isfinite(values)
    if not inside.any():
        return None
    mine, where = values[inside].astype(np.float64), steps[inside]
    ends = {"lowest": int(mine.argmin()), "highest": int(mine.argmax())}
    found = {name: {"step": int(where[place]), "loss": float(mine[place])} for name, place in ends.items()}
    return {"mean": float(mine.mean()), **found}


def _samples(run: Run, since: int, last: int, looks: SourceLooks | None) -> dict[str, Any]:
    """Return the samples of as many steps as fit a page, and where the next page begins."""
    applied = run.steps.kept
    here = taken(applied, (applied["step"] >= since) & (applied["step"] <= last))
    most = _LISTED if looks is None else _LOOKED_AT
    count = max(1, most // max(int(here["samples"].max(initial=1)), 1))
    order = np.argsort(here["step"], kind="stable")[:count]
    steps = np.unique(here["step"][order]).tolist()
    losses = {int(here["step"][row]): float(here["loss"][row]) for row in order if here["losses"][row]}
    listed = []
    for step, rows in run.samples_of(steps).items():
        shown = [{k: row[k] for k in ("slot", "dataset", "name", "index")} for row in rows[:most]]
        for row in shown:
            row["description"] = None if looks is None else looks.describe(row["name"], row["index"])
        listed.append({"step": step, "loss": losses.get(step), "samples": shown, "sample_count": len(rows)})
    following = steps[-1] + 1 if steps and steps[-1] < last else None
    return {"listed": listed, "next": following}


def _shares(run: Run, first: int, stop: int) -> list[dict[str, Any]]:
    """Return samples, share and planned share of each dataset, the largest first."""
    counts, planned = np.zeros(len(run.datasets)), np.zeros(len(run.datasets))
    if run.evidence.is_planned:
        applied = run.steps.applied
        here = taken(applied, (applied["step"] >= first) & (applied["step"] < stop))
        for attempt in np.unique(here["attempt"]).tolist():
            plan, steps = run.evidence.plan(attempt), here["step"][here["attempt"] == attempt]
            if plan is not None:
                counts[: len(plan.names)] += counts_of_steps(plan, steps)
                planned[: len(plan.names)] += planned_counts(plan, steps)
    else:
        counts += run.counts_between(first, stop)
    rows = [
        {
            "dataset": name,
            "samples": int(counts[number]),
            "share": float(counts[number] / max(counts.sum(), 1.0)),
            "planned": float(planned[number] / planned.sum()) if planned.sum() else None,
        }
        for number, name in run.named_datasets
        if counts[number] or planned[number]
    ]
    return sorted(rows, key=lambda row: -row["samples"])
