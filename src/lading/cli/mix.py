"""``lading mix RUN --by epoch``: what the model got of each dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.output import Json, Run, answer
from lading.report import open_run, render

_COLUMNS = {"group": "", "dataset": "dataset", "samples": "samples", "share": "share", "planned": "planned"}


def mix(
    run: Run,
    by: Annotated[str, typer.Option(help="run, epoch, chunk, attempt, or a number of steps.")] = "run",
    as_json: Json = False,
) -> None:
    """What the model got of each dataset, against the plan."""
    found = open_run(run).mix(int(by) if by.isdigit() else by).dicts()
    columns = _COLUMNS if by != "run" else {k: v for k, v in _COLUMNS.items() if k != "group"}
    answer(found, lambda: render.table(found, columns), as_json=as_json)
