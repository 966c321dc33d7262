"""``lading diff RUN OTHER``: whether two runs hold the same."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.output import Json, Run, answer
from lading.report import open_run, render


def diff(
    run: Run,
    other: Annotated[str, typer.Argument(help="Folder of the other run.", metavar="OTHER", show_default=False)],
    as_json: Json = False,
) -> None:
    """Whether two runs hold the same, and if not, from which step on. Exit code 1: they do not."""
    found = open_run(run).compare(other)
    answer(found.to_dict(), lambda: render.comparison(found), as_json=as_json, holds=found.equal)
