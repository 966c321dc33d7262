"""The charts of the page, as the figures that plotly.js draws: data and layout, plain dicts.

Apart from ``page``: drawing only, nothing of runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lading.report.run import Run
from lading.report.summary import describe_attempt
from lading.runtime.shown import shown, shown_html

COLOURS = (
    "#4269d0", "#efb118", "#3ca951", "#ff725c", "#6cc5b0", "#a463f2", "#97bbf5", "#9c6b4e", "#ff8ab7", "#9498a0",
    "#2f6f4f", "#b5651d",
)  # fmt: skip
KEPT, ROLLED_BACK = "#3ca951", "#c9a0dc"
_MOST_POINTS = 3000
_LONGEST_LABEL = 28
Figure = dict[str, Any]


def short(name: str) -> str:
    """Return a long name with its middle left out."""
    name = shown(name)
    return name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 13]}…{name[-12:]}"


def label(name: str) -> str:
    """Return a name as a chart shows it: short, and never read as markup."""
    return shown_html(short(name)).replace("%{", "% {")  # plotly would fill a template in


def figure(traces: list[dict[str, Any]], *, y: str, x: str = "step", height: int = 320, **layout: Any) -> Figure:
    """Return a figure in the page's style."""
    axis = {"gridcolor": "#e8e8e4", "zeroline": False, "automargin": True}
    base = {
        "height": height,
        "margin": {"l": 48, "r": 12, "t": 12, "b": 52},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "#24292f"},
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0},
        "hovermode": "closest",
        "xaxis": {**axis, "title": {"text": x}},
        "yaxis": {**axis, "title": {"text": y}},
    }
    return {"data": traces, "layout": {**base, **layout}}


def attempts_chart(run: Run) -> Figure:
    """Return each attempt as a bar over the steps it recorded: what was kept, what was rolled back."""
    rows = [describe_attempt(run.evidence, a) for a in run.evidence.attempts.values() if not a.is_void]
    traces = []
    for kind, word, colour in (("kept", "kept", KEPT), ("rolled_back", "rolled back", ROLLED_BACK)):
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": kind if kind == "kept" else "rolled back or never used",
                "y": [f"attempt {row['attempt']}" for row in rows],
                "x": [row[kind] for row in rows],
                "base": [row["start"] + (row["kept"] if kind == "rolled_back" else 0) for row in rows],
                "marker": {"color": colour},
                "hovertext": [
                    f"{row[kind]} steps {word}, {row['ranks']} ranks, {row['state']}, began {row['began']} UTC"
                    for row in rows
                ],
                "hoverinfo": "text",
            }
        )
    height = 120 + 26 * len(rows)
    axis = {"autorange": "reversed", "automargin": True, "type": "category"}
    return figure(traces, y="", height=height, barmode="overlay", yaxis=axis, bargap=0.35,
                  legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
                  margin={"l": 48, "r": 12, "t": 34, "b": 52})  # fmt: skip


def loss_chart(run: Run, spikes: list[dict[str, Any]]) -> Figure:
    """Return the loss along the run, with its spikes marked."""
    table = run.losses().arrow
    steps, loss = table["step"].to_numpy(), table["loss"].to_numpy().astype(float)
    x, y = thinned(steps, loss)
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "loss",
            "x": x,
            "y": y,
            "line": {"color": COLOURS[0], "width": 1.5},
        }
    ]
    seen = [s for s in spikes if s["loss"] is not None and np.isfinite(s["loss"])]
    if seen:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "spikes",
                "x": [s["step"] for s in seen],
                "y": [s["loss"] for s in seen],
                "marker": {"color": "#d1242f", "size": 9, "symbol": "circle-open", "line": {"width": 2}},
            }
        )
    return figure(traces, y="loss")


def thinned(steps: np.ndarray, values: np.ndarray) -> tuple[list[int], list[float | None]]:
    """Return at most a few thousand points; of each bucket the lowest and the highest, so that no peak is lost."""
    chosen = np.arange(len(steps))
    if len(steps) > _MOST_POINTS:
        kept: list[int] = []
        for bucket in np.array_split(chosen, _MOST_POINTS // 2):
            finite = np.where(np.isfinite(values[bucket]), values[bucket], np.nan)
            if np.isnan(finite).all():
                kept.append(int(bucket[0]))
            else:
                kept += sorted({int(bucket[np.nanargmin(finite)]), int(bucket[np.nanargmax(finite)])})
        chosen = np.array(kept)
    points = [float(v) if np.isfinite(v) else None for v in values[chosen]]
    return steps[chosen].tolist(), points


def mix_chart(run: Run, rows: list[dict[str, Any]]) -> Figure:
    """Return the share of each dataset along the run, stacked; dashed: what the plan meant."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    middle = {row["group"]: (row["first_step"] + row["last_step"]) / 2 for row in rows}
    x = [middle[g] for g in groups]
    share = {(row["group"], row["dataset"]): row for row in rows}
    traces, planned = [], np.zeros(len(groups))
    for d, (_, name) in enumerate(run.named_datasets):
        colour = COLOURS[d % len(COLOURS)]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": label(name),
                "x": x,
                "y": [100 * share[g, name]["share"] for g in groups],
                "stackgroup": "one",
                "line": {"width": 0.5, "color": colour},
                "hovertemplate": f"{label(name)}: %{{y:.2f}} %<extra></extra>",
            }
        )
    for _, name in run.named_datasets[:-1]:
        values = [share[g, name]["planned"] for g in groups]
        if any(v is None for v in values):
            break
        planned = planned + 100 * np.array(values)
        dashed = {"dash": "dash", "width": 1, "color": "#24292f"}
        traces.append({"type": "scatter", "mode": "lines", "x": x, "y": planned.tolist(), "line": dashed,
                       "name": "plan", "hoverinfo": "skip"})  # fmt: skip
    axis = {"range": [0, 100], "title": {"text": "share of samples, %"}, "gridcolor": "#e8e8e4", "automargin": True}
    return figure(traces, y="", yaxis=axis, showlegend=False)


def passes_chart(rows: list[dict[str, Any]]) -> Figure:
    """Return how often each dataset was gone through."""
    known = [row for row in rows if row["passes"] is not None]
    places = list(range(len(known)))
    trace = {
        "type": "bar",
        "orientation": "h",
        "y": places,
        "x": [row["passes"] for row in known],
        "marker": {"color": [COLOURS[d % len(COLOURS)] for d in places]},
        "hovertemplate": "%{x:.3f} passes<extra></extra>",
    }
    # Places, not names, on the axis: two long names that are cut alike must stay two bars.
    axis = {"tickvals": places, "ticktext": [label(row["dataset"]) for row in known], "autorange": "reversed",
            "automargin": True}  # fmt: skip
    return figure([trace], y="", x="passes", height=110 + 28 * len(known), yaxis=axis, showlegend=False)


def dataset_loss_chart(run: Run) -> Figure:
    """Return the loss of each dataset along the run.

    Where training committed ``loss/<dataset>`` that is drawn. Otherwise the batches are all there is, and every one
    holds a bit of everything: drawn is how much more than the mean of all batches those cost that are rich in it.
    """
    rows = run.losses(by="dataset", bins=40).dicts()
    own = run.has_dataset_losses
    means = {} if own else _bin_means(rows)
    traces = []
    for d, (_, name) in enumerate(run.named_datasets):
        mine = [row for row in rows if row["dataset"] == name and row["loss"] is not None]
        line = {"color": COLOURS[d % len(COLOURS)], "width": 1.5}
        traces.append({"type": "scatter", "mode": "lines", "name": label(name), "line": line,
                       "x": [(row["first_step"] + row["last_step"]) / 2 for row in mine],
                       "y": [row["loss"] - means.get(row["first_step"], 0.0) for row in mine]})  # fmt: skip
    return figure(traces, y="loss" if own else "loss above the mean", showlegend=False)


def _bin_means(rows: list[dict[str, Any]]) -> dict[int, float]:
    """Return the mean loss of each part of the run, all datasets together."""
    totals: dict[int, list[float]] = {}
    for row in rows:
        if row["loss"] is not None:
            total = totals.setdefault(row["first_step"], [0.0, 0.0])
            total[0] += row["loss"] * row["samples"]
            total[1] += row["samples"]
    return {first: weighted / samples for first, (weighted, samples) in totals.items() if samples}
