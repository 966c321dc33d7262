"""``lading block RUN code:93412``: use samples no more, from the next attempt on."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from lading.cli.output import Json, Run, answer
from lading.report import open_run


def block(
    run: Run,
    specs: Annotated[
        list[str],
        typer.Argument(
            help="dataset:index, dataset:first-last or step:number.", metavar="SAMPLE...", show_default=False
        ),
    ],
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    as_json: Json = False,
) -> None:
    """Use samples no more, from the next attempt's first step on; deterministic substitutes take their places."""
    opened = open_run(run)
    new = [f"{opened.datasets[sample.dataset]}:{sample.index}" for sample in opened.block(*specs, reason=reason)]
    text = f"{len(new)} samples are blocked from the next attempt on" if new else "all of them were blocked already"
    answer({"blocked": new}, lambda: Text(text), as_json=as_json)
