"""``lading plan CONFIG``: passes per source, exhaustion and shares over time, before anything runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from lading.cli.output import Json, answer
from lading.cli.plan_config import read_plan, steps_until
from lading.order.forecasting import Forecast, forecast
from lading.report import render

_COLUMNS = {
    "dataset": "dataset",
    "length": "samples",
    "samples": "drawn",
    "share": "share",
    "tokens": "tokens",
    "passes": "passes",
    "used_up": "used up at step",
}


def plan(
    config: Annotated[str, typer.Argument(help="YAML or JSON file with datasets, batch_size and weights.")],
    until: Annotated[
        str | None, typer.Option(help="How far to look: 20000ba, 3ep, 1e6sp. Default: the file's.")
    ] = None,
    picture: Annotated[str | None, typer.Option(help="Write a picture: .html, .png or .svg.")] = None,
    max_passes: Annotated[float | None, typer.Option(help="Exit with 1 if any dataset is passed more often.")] = None,
    as_json: Json = False,
) -> None:
    """What a run would draw from each dataset, before anything runs."""
    planned, told = read_plan(config)
    found = forecast(planned, steps_until(planned, until or told))
    if picture is not None:
        _draw(found, picture)
    worn = [d.dataset for d in found.datasets if max_passes is not None and d.passes > max_passes]
    value = {**found.to_dict(), "plan": planned.fingerprint, "too_many_passes": worn}
    answer(value, lambda: _text(found, worn, max_passes), as_json=as_json, holds=not worn)


def _text(found: Forecast, worn: list[str], max_passes: float | None) -> RenderableType:
    rows = [vars(d) for d in found.datasets]
    columns = {k: v for k, v in _COLUMNS.items() if k != "tokens" or any(row["tokens"] is not None for row in rows)}
    lines = [f"{found.steps} steps, {found.samples} samples"]
    if found.changes:
        steps = ", ".join(map(str, found.changes[:8])) + (" ..." if len(found.changes) > 8 else "")
        lines.append(f"weights change at step {steps}")
    if worn:
        lines.append(f"more than {max_passes:g} passes: {', '.join(worn)}")
    return Group(render.table(rows, columns), Text("\n".join(lines)))


def _draw(found: Forecast, path: str) -> None:
    from lading.report.mixture_plotly import MixturePicture  # plotly is optional and slow to import

    marks = [(step, "new weights") for step in found.changes] if len(found.changes) <= 8 else []
    marks += [(d.used_up, f"{d.dataset} used up") for d in found.datasets if d.used_up is not None][:8]
    MixturePicture("What the plan draws", found.at_steps, found.shares, passes=found.passes, marks=marks).write(path)
