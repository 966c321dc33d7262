"""``lading sql RUN "SELECT ..."``: DuckDB over batches, history and samples."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.output import Json, Run, answer
from lading.errors import ConfigError
from lading.report import open_run, render


def sql(
    run: Run,
    query: Annotated[str, typer.Argument(help="SQL over batches, history and samples.", show_default=False)],
    steps: Annotated[str | None, typer.Option(help="FIRST:STOP, the steps whose samples are worked out.")] = None,
    as_json: Json = False,
) -> None:
    """Ask DuckDB over batches, history and samples."""
    found = open_run(run).sql(query, steps=_bounds(steps))
    answer(found.dicts(), lambda: render.table(found, {c: c for c in found.columns}), as_json=as_json)


def _bounds(steps: str | None) -> tuple[int, int] | None:
    if steps is None:
        return None
    first, colon, stop = steps.partition(":")
    if not colon or not first.isdigit() or not stop.isdigit():
        raise ConfigError(f"--steps {steps!r}: expected FIRST:STOP, for instance 100:200.")
    return int(first), int(stop)
