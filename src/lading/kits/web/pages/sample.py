"""A sample, or a document of packed rows, on one page: every step that used it, and those that will."""

from __future__ import annotations

import base64
from typing import Any

from lading.kits.web.pages.rollouts import groups_of
from lading.report.run import Run
from lading.report.uses import uses_of_document
from lading.report.where import FORGOTTEN, IS_BLOCKED
from lading.source.looks import SourceLooks

_MOST_USES = 1000
_USED_NO_MORE = (IS_BLOCKED, FORGOTTEN)


def sample_page(run: Run, dataset: str | int, index: int, looks: SourceLooks | None = None) -> dict[str, Any]:
    """Return everything on the page of a sample.

    Args:
        looks: Says what samples look like, where the sources are at hand.
    """
    number = run.number_of(dataset)
    name = run.datasets[number] if number < len(run.datasets) else str(number)
    until = planned_until(run)
    uses = run.where(number, index, until=until).dicts()
    blocked = [row["note"] for row in uses if row["fate"] in _USED_NO_MORE]
    return {
        "dataset": number,
        "name": name,
        "index": index,
        "documents": run.documents.of(number, index),
        "description": None if looks is None else looks.describe(name, index),
        "preview": _preview(looks, name, index),
        **_counts(uses),
        "blocked": blocked[0] if blocked else None,
        "groups": groups_of(run, number, index),
        "planned_until": until,
        "uses": [row for row in uses if row["fate"] not in _USED_NO_MORE][:_MOST_USES],
        "steps": run.num_steps,
    }


def document_page(run: Run, dataset: str | int, document: int) -> dict[str, Any]:
    """Return everything on the page of a document of a packed dataset: its rows, and their steps."""
    number, until = run.number_of(dataset), planned_until(run)
    spans = run.documents.rows_of(number, document)
    uses = uses_of_document(run, number, document, until)
    blocked = [f"row {row['index']} is {row['note']}" for row in uses if row["fate"] in _USED_NO_MORE and row["note"]]
    uses = [row for row in uses if row["fate"] not in _USED_NO_MORE or row["attempt"] is not None]
    uses.sort(key=lambda row: (row["step"], row["index"]))
    own = {"document": document, "id": run.documents.name(number, document), "rows": spans}
    fields = {"dataset": number, "name": run.datasets[number], **own}
    fields["blocked"] = "; ".join(blocked) or None
    return {**fields, **_counts(uses), "planned_until": until, "uses": uses[:_MOST_USES], "steps": run.num_steps}


def planned_until(run: Run) -> int | None:
    """Return the step up to which coming uses are listed: an epoch from now; None where nothing is planned."""
    plan = run.plan
    if plan is None:
        return None
    return run.num_steps + plan.epoch_steps(plan.locate(run.num_steps).epoch)


def _counts(uses: list[dict[str, Any]]) -> dict[str, int]:
    return {
        "used": sum(row["fate"] == "applied" for row in uses),
        "coming": sum(row["fate"] == "planned" for row in uses),
        "unused": sum(row["fate"] not in ("applied", "planned", *_USED_NO_MORE) for row in uses),
    }


def _preview(looks: SourceLooks | None, name: str, index: int) -> dict[str, Any] | None:
    found = None if looks is None else looks.preview(name, index)
    if found is None or "data" not in found:
        return found
    data = base64.b64encode(found["data"]).decode("ascii")
    return {**{k: v for k, v in found.items() if k != "data"}, "base64": data}
