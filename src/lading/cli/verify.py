"""``lading verify RUN``: whether the record is what the plan says, byte for byte."""

from __future__ import annotations

from lading.cli.output import Json, Run, answer, progress_bar
from lading.report import open_run, render


def verify(run: Run, as_json: Json = False) -> None:
    """Whether the record is what the plan says, byte for byte. Exit code 1: it is not."""
    with progress_bar(quiet=as_json) as progress:
        verdict = open_run(run).verify(progress)
    answer(verdict.to_dict(), lambda: render.verdict(verdict), as_json=as_json, holds=verdict.holds)
