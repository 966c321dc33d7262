"""``lading show RUN``: what a run is and how far it got."""

from __future__ import annotations

from lading.cli.output import Json, Run, answer
from lading.report import open_run, render
from lading.report.summary import summarise


def show(run: Run, as_json: Json = False) -> None:
    """What a run is and how far it got."""
    found = summarise(open_run(run))
    answer(found.to_dict(), lambda: render.summary(found), as_json=as_json)
