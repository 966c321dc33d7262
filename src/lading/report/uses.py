"""The updates that used a sample, or the tokens of a document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lading.ledger.tables import APPLIED
from lading.report.where import BAD, FORGOTTEN, IS_BLOCKED, PLANNED, fates_of

if TYPE_CHECKING:
    from lading.report.asked import AskedRun

_NOT_DELIVERED = (PLANNED, BAD, IS_BLOCKED, FORGOTTEN)
_KEPT = ("index", "step", "epoch", "slot", "attempt", "note")


def uses_of(run: AskedRun, number: int, indices: Iterable[int], document: int | None = None) -> list[dict[str, Any]]:
    """Return the places of a run's history at which an update used one of some samples, in order.

    Args:
        document: Only where this document of them was not masked.
    """
    found = [row for row in deliveries_of(run, number, indices, document) if row["fate"] == APPLIED]
    fates = fates_of(run.evidence, {row["step"] for row in found}) if found else {}
    named = {"run": run.evidence.description.run, "dataset": run.datasets[number]}
    found.sort(key=lambda row: (row["attempt"], row["step"], row["slot"]))
    updates = [fates[row["attempt"], row["step"]]["update"] for row in found]
    kept = [{name: row[name] for name in _KEPT} for row in found]
    return [{**named, **row, "update": update} for row, update in zip(kept, updates, strict=True)]


def deliveries_of(
    run: AskedRun, number: int, indices: Iterable[int], document: int | None = None
) -> list[dict[str, Any]]:
    """Return the places at which some samples were delivered, in any attempt, whatever became of them."""
    found = [{"index": index, **row} for index in indices for row in run.where(number, index)]
    return [row for row in found if row["fate"] not in _NOT_DELIVERED and not is_masked(run, number, document, row)]


def uses_of_document(run: AskedRun, number: int, document: int, until: int | None = None) -> list[dict[str, Any]]:
    """Return what became of every row that holds a document, with its span; ``forgotten`` where it was masked."""
    spans = run.documents.rows_of(number, document)
    found = [{**row, **span} for span in spans for row in run.where(number, span["index"], until=until)]
    return [{**row, "fate": FORGOTTEN} if is_masked(run, number, document, row) else row for row in found]


def is_masked(run: AskedRun, number: int, document: int | None, row: dict[str, Any]) -> bool:
    """Say whether the tokens of a document are padding where a row is delivered."""
    if document is None or row["fate"] in (IS_BLOCKED, FORGOTTEN):
        return False
    plan = run.plan if row["attempt"] is None else run.evidence.plan(row["attempt"])
    return plan is not None and any(d == number and document in found for d, found in plan.masked_at(row["step"]))
