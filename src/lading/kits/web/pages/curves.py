"""The curves of a run: its loss and every metric that was committed, and what a step is in samples, tokens and hours.

    loss                          one chart
    loss/code  loss/web           metrics of one family share a chart
    lr                            one chart

Of a long run each line has the lowest and the highest value of every stretch, so that no peak is lost, and the mean
of each, which is what can be smoothed.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.report.history import taken
from lading.report.length import mean_tokens, trained_seconds
from lading.report.run import Run

MOST_POINTS = 2000
MOST_LINES = 10  # that a chart can tell apart
_ALL_POINTS = 40_000  # of all metrics together
_LEAST_POINTS = 100
_KNOTS = 400
_TOKEN_PARTS = 60


def curves_page(run: Run, first: int = 0, last: int | None = None) -> dict[str, Any]:
    """Return every curve of a run, or of a stretch of it, drawn finer there.

    Args:
        last: Last step; None: that of the run.
    """
    stop = run.num_steps if last is None else last + 1
    losses = run.losses().arrow
    loss = _line("loss", losses["step"].to_numpy(), losses["loss"].to_numpy(), first, stop, MOST_POINTS)
    return {
        "steps": run.num_steps,
        "charts": [{"name": "loss", "lines": [loss]}, *metric_charts(run, first, stop)],
        "undone": undone_lines(run, first, stop),
        "clock": clock(run),
    }


def metric_charts(run: Run, first: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
    """Return the charts of every metric that was committed beside the loss; metrics of a family share one."""
    found, stop = run.metrics(), run.num_steps if stop is None else stop
    most = max(_LEAST_POINTS, min(MOST_POINTS, _ALL_POINTS // max(len(found), 1)))
    lines: dict[str, list[dict[str, Any]]] = {}
    for name, table in found.items():
        family = f"{name.rpartition('/')[0]}/" if "/" in name else name
        line = _line(name, table.arrow["step"].to_numpy(), table.arrow["value"].to_numpy(), first, stop, most)
        lines.setdefault(family, []).append(line)
    charts = []
    for family, mine in lines.items():
        parts = [mine[first : first + MOST_LINES] for first in range(0, len(mine), MOST_LINES)]
        for number, part in enumerate(parts):
            name = part[0]["name"] if len(part) == 1 else f"{family}*"
            charts.append({"name": name if len(parts) == 1 else f"{name} ({number + 1})", "lines": part})
    return charts


def undone_lines(run: Run, first: int = 0, stop: int | None = None) -> list[dict[str, Any]]:
    """Return the losses of what was undone or left behind, attempt by attempt."""
    table, stop = run.undone_losses().arrow, run.num_steps if stop is None else stop
    attempts, steps, values = (table[name].to_numpy() for name in ("attempt", "step", "loss"))
    return [
        {"attempt": n, **_line("undone", steps[attempts == n], values[attempts == n], first, stop, MOST_POINTS)}
        for n in np.unique(attempts).tolist()
    ]


def clock(run: Run) -> dict[str, Any]:
    """Return samples, tokens and seconds of training up to some steps, for the axis below a curve; None: not known."""
    kept = run.steps.kept
    if len(kept["step"]):
        kept = taken(kept, kept["step"] > np.maximum.accumulate(np.append(-1, kept["step"][:-1])))  # replays left out
    step, seconds = kept["step"], trained_seconds(kept["attempt"], kept["time"])
    samples = np.cumsum(np.where(kept["applied"], kept["samples"], 0))
    chosen = np.unique(np.linspace(0, len(step) - 1, min(len(step), _KNOTS)).astype(int)) if len(step) else step
    tokens = _tokens(run)
    return {
        "step": step[chosen].tolist(),
        "samples": samples[chosen].tolist(),
        "tokens": None if tokens is None else np.interp(step[chosen], *tokens).round().tolist(),
        "seconds": [round(s, 3) for s in seconds[chosen].tolist()],
    }


def compare_page(left: Run, right: Run) -> dict[str, Any]:
    """Return everything on the page that compares two runs: where they differ first, and their losses."""
    found, tables = left.compare(right), [run.losses().arrow for run in (left, right)]
    losses = [points(table["step"].to_numpy(), table["loss"].to_numpy().astype(np.float64)) for table in tables]
    return {**found.to_dict(), "losses": losses, "num_steps": max(left.num_steps, right.num_steps)}


def _tokens(run: Run) -> tuple[list[int], list[float]] | None:
    """Return the tokens used up to the last step of each part of a run."""
    means = mean_tokens(run)
    if means is None:
        return None
    totals: dict[int, float] = {}
    for row in run.mix(part_steps(run)):
        totals[row["last_step"]] = totals.get(row["last_step"], 0.0) + row["samples"] * means.get(row["dataset"], 0.0)
    return [-1, *totals], [0.0, *itertools.accumulate(totals.values())]


def part_steps(run: Run) -> int:
    """Return the steps of one of the parts that shares are drawn by."""
    return max(1, math.ceil(run.num_steps / _TOKEN_PARTS))


def _line(name: str, steps: NDArray[Any], values: NDArray[Any], first: int, stop: int, most: int) -> dict[str, Any]:
    in_order = np.all(steps[1:] >= steps[:-1])
    inside = slice(*np.searchsorted(steps, [first, stop])) if in_order else (steps >= first) & (steps < stop)
    return {"name": name, **points(steps[inside], values[inside].astype(np.float64), most)}


def _ends(buckets: NDArray[np.float64], first: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the places of the lowest and the highest value of each row of ``_buckets``: no peak is lost."""
    low, high = (np.where(np.isnan(buckets), missing, buckets) for missing in (np.inf, -np.inf))
    return np.unique(np.concatenate([np.argmin(low, axis=1) + first, np.argmax(high, axis=1) + first]))


def points(steps: NDArray[Any], values: NDArray[np.float64], most: int = MOST_POINTS) -> dict[str, list[Any]]:
    """Return ``step`` and ``value`` as a chart draws them; of more than so many also the ``mean`` of each stretch."""
    if len(steps) <= most:
        return {"step": steps.tolist(), "value": _known(values)}
    buckets, first = _buckets(values, most)
    chosen = _ends(buckets, first)
    found = {"step": steps[chosen].tolist(), "value": _known(values[chosen])}
    count = (~np.isnan(buckets)).sum(axis=1)
    mean = np.where(count, np.nansum(buckets, axis=1) / np.maximum(count, 1), np.nan)
    middle = np.minimum(first + buckets.shape[1] // 2, len(steps) - 1)
    return {**found, "mean_step": steps[middle].tolist(), "mean": _known(mean)}


def _buckets(values: NDArray[np.float64], most: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return values in rows of equal size, what is missing or infinite as NaN, and the place where each row begins."""
    size = -(-len(values) // (most // 2))
    whole = np.full(-(-len(values) // size) * size, np.nan)
    whole[: len(values)] = np.where(np.isfinite(values), values, np.nan)
    return whole.reshape(-1, size), np.arange(len(whole) // size) * size


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [rounded(value) if math.isfinite(value) else None for value in values.tolist()]


def rounded(value: float) -> float:
    """Return a number with the digits that a picture can show."""
    return float(f"{value:.5g}")
