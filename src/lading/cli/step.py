"""``lading step RUN 48213``: what was in a step, and what became of it."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.decode import Decode, contents
from lading.cli.output import Json, Run, answer
from lading.report import open_run, render


def step(
    run: Run,
    number: Annotated[int, typer.Argument(help="The step, from 0.", metavar="STEP", show_default=False)],
    decode: Decode = None,
    as_json: Json = False,
) -> None:
    """What was in a step, and what became of it."""
    record = open_run(run).step(number)
    found = record.to_dict()
    if decode is None:
        answer(found, lambda: render.step(record), as_json=as_json)
        return
    texts = contents(decode, record.samples.dicts())
    found["samples"] = [{**row, "content": text} for row, text in zip(found["samples"], texts, strict=True)]
    answer(found, lambda: render.step(record, texts), as_json=as_json)
