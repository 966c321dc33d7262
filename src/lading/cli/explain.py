"""``lading explain RUN 48213``: everything around a step."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group

from lading.cli.decode import Decode, contents, decoded_table
from lading.cli.output import Json, Run, answer
from lading.report import open_run, render


def explain(
    run: Run,
    number: Annotated[int, typer.Argument(help="The step, from 0.", metavar="STEP", show_default=False)],
    around: Annotated[int, typer.Option(help="Steps before and after it to show.")] = 5,
    decode: Decode = None,
    as_json: Json = False,
) -> None:
    """Everything around a step: samples, shares, exposures, losses."""
    found = open_run(run).explain(number, around=around)
    values = found.to_dict()
    if decode is None:
        answer(values, lambda: render.explanation(found), as_json=as_json)
        return
    texts = contents(decode, found.record.samples.dicts())
    values["samples"] = [{**row, "content": text} for row, text in zip(values["samples"], texts, strict=True)]
    answer(values, lambda: Group(render.explanation(found), decoded_table(values["samples"])), as_json=as_json)
