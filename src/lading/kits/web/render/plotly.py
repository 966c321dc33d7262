"""Plotly: a picture of a mixture.

Shares as planned are lines, as delivered dots, passes below. Many datasets would be a carpet of lines, so only the
largest are drawn by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lading.errors import ConfigError, missing_extra
from lading.runtime.fields import shown_html
from lading.runtime.paths import local_path

try:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots
except ImportError as error:
    raise missing_extra("plotly", "ui", "a picture of a mixture") from error

MOST_NAMED = 10
COLOURS = ("#2563eb", "#d97706", "#059669", "#db2777", "#7c3aed", "#0891b2", "#65a30d", "#dc2626", "#475569", "#a16207")


@dataclass(frozen=True)
class MixturePicture:
    """What is drawn.

    Attributes:
        title: Above the picture.
        steps: Steps of the planned values.
        planned: Share of each dataset at those steps, by name.
        delivered: (steps, shares) of what was really delivered, by name.
        passes: Passes of each dataset at the planned steps, by name.
        marks: Steps to mark, and what happened there.
    """

    title: str
    steps: Sequence[float]
    planned: Mapping[str, Sequence[float]]
    delivered: Mapping[str, tuple[Sequence[float], Sequence[float]]] = field(default_factory=dict)
    passes: Mapping[str, Sequence[float]] = field(default_factory=dict)
    marks: Sequence[tuple[float, str]] = ()

    def figure(self) -> go.Figure:
        """Return the picture as a Plotly figure."""
        rows = 2 if self.passes else 1
        titles = ("share of the samples", "passes over each dataset")[:rows]
        figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.1, subplot_titles=titles)
        for colour, name in zip(COLOURS, self._named(), strict=False):
            self._draw(figure, name, colour)
        for step, text in self.marks:
            figure.add_vline(step, line_dash="dot", line_color="#94a3b8")
            figure.add_annotation(
                x=step,
                y=1,
                yref="y domain",
                text=shown_html(text),
                showarrow=False,
                textangle=-90,
                xanchor="right",
                yanchor="top",
            )
        figure.update_yaxes(tickformat=".0%", rangemode="tozero", row=1, col=1)
        figure.update_yaxes(rangemode="tozero")
        figure.update_xaxes(title_text="step", row=rows, col=1)
        margin = {"l": 60, "r": 20, "t": 90, "b": 50}
        height = 400 + 260 * (rows - 1)
        figure.update_layout(template="plotly_white", title=self.title, margin=margin, height=height)
        return figure

    def write(self, path: str | Path) -> Path:
        """Write the picture as a self-contained page (``.html``) or an image (``.png``, ``.svg``)."""
        target = local_path(path)
        if target.suffix == ".html":
            self.figure().write_html(target, include_plotlyjs=True)
        elif target.suffix in (".png", ".svg"):
            try:
                self.figure().write_image(target, width=1000, scale=1.5)
            except (ValueError, RuntimeError, ImportError) as error:
                raise ConfigError(
                    f"{target} could not be drawn: {error}. Images need kaleido and a Chrome or Chromium; "
                    "write a .html page instead, which needs neither."
                ) from error
        else:
            raise ConfigError(f"{target}: expected a file that ends in .html, .png or .svg.")
        return target

    def _named(self) -> list[str]:
        """Return the datasets with the largest shares."""
        mean = {name: sum(values) / max(len(values), 1) for name, values in self.planned.items()}
        return sorted(sorted(mean, key=lambda name: -mean[name])[:MOST_NAMED], key=list(self.planned).index)

    def _draw(self, figure: go.Figure, name: str, colour: str) -> None:
        line, label = {"color": colour, "width": 1.5}, shown_html(name)
        planned = go.Scatter(
            x=self.steps, y=self.planned[name], mode="lines", line={**line, "shape": "hv"}, name=label, legendgroup=name
        )
        figure.add_trace(planned, row=1, col=1)
        if name in self.delivered:
            x, y = self.delivered[name]
            dots = {"color": colour, "size": 5, "opacity": 0.7}
            seen = go.Scatter(x=x, y=y, mode="markers", marker=dots, name=f"{label}, delivered", legendgroup=name)
            figure.add_trace(seen, row=1, col=1)
        if name in self.passes:
            line = go.Scatter(
                x=self.steps,
                y=self.passes[name],
                mode="lines",
                line=line,
                name=label,
                legendgroup=name,
                showlegend=False,
            )
            figure.add_trace(line, row=2, col=1)
