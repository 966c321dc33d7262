"""The plots of the benchmarks' page. Apart from ``table``: only they need plotly, kaleido and a Chromium."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

OURS, THEIRS, THIRD, WORSE = "#00897b", "#b0bec5", "#78909c", "#e57373"
AXES = {
    "data size": "samples of the data", "number of datasets": "datasets", "world size": "ranks, 8 samples each",
    "resume point": "step of the resume", "batch size": "samples of the step",
}  # fmt: skip
SHOWN = ("batches", "hugging", "real", "jax", "loader", "workers", "grain", "resume", "packing", "tracker", "corpora")


def draw(results: list[dict[str, Any]], folder: Path) -> None:
    """Write all plots."""
    folder.mkdir(exist_ok=True)
    for name, figure in (("ratios", ratios(results)), ("scaling", scaling(results)), ("waiting", waiting(results))):
        if not figure.data:  # not measured
            continue
        figure.update_layout(template="simple_white", font={"size": 13, "family": "sans-serif"})
        figure.write_image(folder / f"benchmark-{name}.png", scale=1.5)


def ratios(results: list[dict[str, Any]]) -> go.Figure:
    """Draw how many times the peer ours is, on a logarithmic axis around 1."""
    shown = [r for r in results if r["room"] in SHOWN and r.get("ratio") and r.get("peer_name")]
    colors = [OURS if r["ratio"] >= 1 else WORSE for r in shown]
    bars = go.Bar(
        y=[r["case"] for r in shown],
        x=[r["ratio"] - 1 for r in shown],
        base=1,
        orientation="h",
        marker={"color": colors},
        text=[f"{r['ratio']:.0f}" if r["ratio"] > 100 else f"{r['ratio']:.2g}" for r in shown],
        textposition="outside",
        cliponaxis=False,
    )
    figure = go.Figure(bars)
    figure.update_xaxes(type="log", title="times the peer", tickvals=[0.5, 1, 2, 5, 10, 100, 1000], side="top")
    figure.update_yaxes(autorange="reversed", ticks="", automargin=True)
    figure.add_vline(x=1, line={"width": 1, "color": "black"})
    figure.update_layout(width=1100, height=90 + 21 * len(shown), margin={"l": 10, "r": 60, "t": 60, "b": 20})
    return figure


def scaling(results: list[dict[str, Any]]) -> go.Figure:
    """Draw the time of a bill against each size."""
    figure = make_subplots(rows=1, cols=len(AXES), subplot_titles=tuple(AXES.values()), horizontal_spacing=0.04)
    for column, axis in enumerate(AXES, 1):
        points = [(max(r["value"], 1), r["ours"]) for r in results if r.get("axis") == axis]
        x, y = zip(*points, strict=True) if points else ((1,), (0.0,))
        line = go.Scatter(x=x, y=y, mode="lines+markers", line={"color": OURS}, showlegend=False)
        figure.add_trace(line, row=1, col=column)
        dtick = 2 if max(x) >= 10**6 else 1
        figure.update_xaxes(type="log", exponentformat="power", dtick=dtick, row=1, col=column)
        figure.update_yaxes(range=[0, max(y) * 1.3], nticks=5, row=1, col=column)
    figure.update_yaxes(title="microseconds", row=1, col=1)
    figure.update_layout(width=1200, height=330, margin={"l": 60, "r": 10, "t": 40, "b": 40})
    return figure


def waiting(results: list[dict[str, Any]]) -> go.Figure:
    """Draw the share of time that steps wait, ours beside both peers."""
    shares: dict[str, dict[str, dict[str, float]]] = {}
    for r in results:
        found = re.fullmatch(r"waiting for (.*), step of (\d+ ms), beside (\w+)", r["case"])
        if found:
            kind, step, peer = found.groups()
            shares.setdefault(kind, {}).setdefault("Lading", {})[step] = r["ours"]
            shares[kind].setdefault(peer, {})[step] = r["peer"]
    figure = make_subplots(rows=1, cols=max(1, len(shares)), shared_yaxes=True, subplot_titles=tuple(shares))
    for column, libraries in enumerate(shares.values(), 1):
        for color, (library, steps) in zip((OURS, THEIRS, THIRD), libraries.items(), strict=True):
            x, y = list(steps), list(steps.values())
            text = [f"{share:.0f}" if share >= 10 else f"{share:.1f}" for share in y]
            bar = go.Bar(x=x, y=y, name=library, text=text, marker={"color": color}, showlegend=column == 1)
            figure.add_trace(bar, row=1, col=column)
    figure.update_yaxes(title="% of the time", row=1, col=1)
    figure.update_layout(width=1100, height=360, margin={"l": 60, "r": 10, "t": 40, "b": 40})
    figure.update_traces(textposition="outside", cliponaxis=False)
    return figure
