"""Losses along the run, what each dataset contributed to them, and where they jumped.

loss ─────────╱╲──────────     a spike stands far above the median of the steps before it,
             step 48 213       measured in their median absolute deviation
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.order.counts import counts_of_steps
from lading.report.evidence import Evidence
from lading.report.history import NOTHING, History, taken
from lading.report.table import Table, schema_of
from lading.report.views import Views
from lading.runtime.arrow import numbers

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
SPIKES = schema_of("step int64, loss float64, usual float64, score float64, update int64")
LOSSES = schema_of("step int64, update int64, epoch int32, attempt int32, loss float32")
UNDONE = schema_of("attempt int32, step int64, loss float32")
BY_DATASET = schema_of("dataset string, first_step int64, last_step int64, samples int64, loss float64")
_MAD_TO_SIGMA = 1.4826
_LEAST_STEPS = 8
SPIKE_WINDOW = 64
_BLOCK = 1 << 13
_LEAST_SPREAD = 1e-3  # of the median: a loss that does not move has no spread, and every breath would be a spike


def losses(history: History) -> Table:
    """Return step, update, epoch and loss of every applied step that has one."""
    rows = taken(history.applied, history.applied["losses"] > 0)
    return Table.of_columns(rows, LOSSES, {"update": rows["update"] != NOTHING})


def spikes(losses: Table, window: int, threshold: float) -> Table:
    """Return the steps whose loss stands far above those before them, the worst first."""
    table = losses.arrow
    loss = table["loss"].to_numpy().astype(np.float64)
    steps, (updates, known) = numbers(table["step"])[0], numbers(table["update"])
    places = _candidates(loss, window, threshold)
    score, usual = _scores_at(loss, places, window)
    found = np.flatnonzero((score > threshold) | ~np.isfinite(loss[places]))
    found = found[np.argsort(-np.where(np.isfinite(score[found]), score[found], np.inf), kind="stable")]
    rows = places[found]
    values = steps[rows], loss[rows], usual[found], score[found], updates[rows]
    return Table.of_columns(dict(zip(SPIKES.names, values, strict=True)), SPIKES, {"update": known[rows]})


def _candidates(loss: F64, window: int, threshold: float) -> I64:
    """Return the places that may be spikes: all others are ruled out by their quarter's three quarters before.

    The window before a place holds three whole quarters. Of so many known values the median and the deviation of the
    window have lower bounds, which are the same for the whole quarter: one sort for it instead of two for each place.
    """
    quarter = window // 4
    whole = len(loss) // quarter if quarter >= 4 else 0
    if whole <= 4 or threshold < 0:
        return np.arange(len(loss))
    blocks = np.sort(np.lib.stride_tricks.sliding_window_view(loss, 3 * quarter)[: (whole - 3) * quarter : quarter])
    unknown = window - 3 * quarter
    least = window // 2 - unknown  # of the known values so many are at most the median, and so many close to it
    with np.errstate(invalid="ignore"):  # infinities, which are taken care of below
        width = np.min(blocks[:, least - 1 :] - blocks[:, : blocks.shape[1] - least + 1], axis=1)
    bound = blocks[:, least - 1] + threshold * _MAD_TO_SIGMA * width / 2 * (1 - 1e-9)
    bound[~np.isfinite(blocks[:, -1])] = -np.inf  # NaN and infinities are sorted to the end
    bounds = np.concatenate([np.full(3 * quarter, -np.inf), np.repeat(bound, quarter)])
    bounds = np.concatenate([bounds, np.full(len(loss) - len(bounds), -np.inf)])
    bounds[: window + quarter] = -np.inf
    return np.flatnonzero((loss > bounds) | ~np.isfinite(loss))


def spike_scores(loss: F64, window: int) -> tuple[F64, F64]:
    """Return how far each loss stands above the median of the ``window`` before it, in robust deviations."""
    return _scores_at(loss, np.arange(len(loss)), window)


def _scores_at(loss: F64, places: I64, window: int) -> tuple[F64, F64]:
    score, usual = np.zeros(len(places)), np.full(len(places), np.nan)
    padded = np.concatenate([np.full(window, np.nan), np.where(np.isfinite(loss), loss, np.nan)])
    before = np.lib.stride_tricks.sliding_window_view(padded, window)[: len(loss)]
    for start in range(0, len(places), _BLOCK):  # in blocks: the windows of a long run do not fit the memory
        part = before[places[start : start + _BLOCK]]
        enough = np.count_nonzero(~np.isnan(part), axis=1) >= min(window, _LEAST_STEPS)
        if enough.any():
            chosen = start + np.flatnonzero(enough)
            score[chosen], usual[chosen] = _robust_scores(loss[places[chosen]], part[enough])
    return np.where(np.isfinite(loss[places]), score, np.inf), usual


def _robust_scores(loss: F64, before: F64) -> tuple[F64, F64]:
    median = np.nanmedian if np.isnan(before).any() else np.median
    usual = median(before, axis=1)
    spread = median(np.abs(before - usual[:, None]), axis=1) * _MAD_TO_SIGMA
    floor = _LEAST_SPREAD * np.maximum(np.abs(usual), 1e-12)
    return (loss - usual) / np.maximum(spread, floor), usual


def undone_losses(history: History) -> Table:
    """Return attempt, step and loss of every step that was trained on and undone, or left behind."""
    steps = history.steps
    undone = ~steps["owned"] & (steps["unused"] < steps["ranks"]) & (steps["losses"] > 0)
    return Table.of_columns(taken(steps, undone), UNDONE)


def losses_by_dataset(evidence: Evidence, views: Views, bins: int, steps_per_bin: int = 40) -> Table:
    """Return the mean loss of each dataset along the run.

    A batch's loss counts for a dataset by the rows it has of it. Where training committed a metric
    ``loss/<dataset>``, that is used instead: it knows better. Of long runs, ``steps_per_bin`` steps a bin are read.
    """
    exact = _own_metrics(evidence, views)
    table = views.query(
        "SELECT step, attempt, loss, metrics FROM history WHERE fate = 'applied' AND loss IS NOT NULL "
        "ORDER BY attempt, step"
    )
    rows = []
    for part in np.array_split(np.arange(len(table)), max(1, min(bins, len(table)))):
        if not len(part):
            continue
        chosen = part[np.linspace(0, len(part) - 1, min(len(part), steps_per_bin)).astype(int)]
        here = table.take(pa.array(chosen)).to_pylist(maps_as_pydicts="lossy")
        counts = _counts(evidence, views, here)
        loss = np.array([row["loss"] for row in here])
        ends = (table["step"][int(part[0])].as_py(), table["step"][int(part[-1])].as_py())
        for d, name in evidence.description.named_datasets:
            values, weights = loss, counts[:, d].astype(float)
            if name in exact:
                own = [(row["metrics"] or {}).get(exact[name]) for row in here]
                values = np.array([np.nan if v is None else v for v in own])
            good = np.isfinite(values) & (weights > 0)
            mean = float(np.average(values[good], weights=weights[good])) if good.any() else None
            fields = {"dataset": name, "first_step": ends[0], "last_step": ends[1]}
            rows.append({**fields, "samples": int(weights.sum()), "loss": mean})
    return Table.of(rows, BY_DATASET)


def has_own_losses(evidence: Evidence, views: Views) -> bool:
    """Say whether training committed metrics ``loss/<dataset>``."""
    return bool(_own_metrics(evidence, views))


def _own_metrics(evidence: Evidence, views: Views) -> dict[str, str]:
    table = views.query("SELECT DISTINCT unnest(map_keys(metrics)) AS name FROM history WHERE metrics IS NOT NULL")
    known = set(table["name"].to_pylist())
    return {name: f"loss/{name}" for _, name in evidence.description.named_datasets if f"loss/{name}" in known}


def _counts(evidence: Evidence, views: Views, rows: list[dict[str, object]]) -> NDArray[np.int64]:
    """Return the samples of each dataset in each of some steps."""
    counts = np.zeros((len(rows), len(evidence.datasets)), dtype=np.int64)
    steps = [int(str(row["step"])) for row in rows]
    if evidence.is_planned:
        for place, row in enumerate(rows):
            plan = evidence.plan(int(str(row["attempt"])))
            if plan is not None:
                counts[place, : len(plan.names)] = counts_of_steps(plan, np.array([steps[place]]))
        return counts
    views.create_samples()
    attempts = [int(str(row["attempt"])) for row in rows]
    places = {pair: place for place, pair in enumerate(zip(attempts, steps, strict=True))}
    views.register("asked", pa.table({"attempt": pa.array(attempts, pa.int32()), "step": pa.array(steps, pa.int64())}))
    sql = (
        "SELECT attempt, step, dataset, count(*) AS n FROM samples SEMI JOIN asked USING (attempt, step) "
        "GROUP BY attempt, step, dataset"
    )
    for found in views.query(sql).to_pylist():
        counts[places[found["attempt"], found["step"]], found["dataset"]] = found["n"]
    return counts
