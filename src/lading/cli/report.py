"""``lading report RUN -o report.html``: one page that tells the whole run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from lading.cli.output import Json, Run, answer, progress_bar
from lading.report import open_run
from lading.report.page import write_page


def report(
    run: Run,
    output: Annotated[str, typer.Option("--output", "-o", help="File to write.")] = "report.html",
    as_json: Json = False,
) -> None:
    """Write one page that tells the whole run; it needs no network and no other file."""
    with progress_bar(quiet=as_json) as progress:
        size = write_page(open_run(run), Path(output), progress)
    answer({"file": output, "bytes": size}, lambda: Text(f"{output}: {size / 1e6:.1f} MB"), as_json=as_json)
