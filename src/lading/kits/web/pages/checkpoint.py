"""A checkpoint on one page: what it was made from, and what it learned from, over all its generations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lading.errors import LadingError, LedgerError
from lading.ledger.log import CheckpointRecord
from lading.report.checkpoint.checkpoint import OpenedCheckpoint, open_checkpoint
from lading.report.history import time_of
from lading.report.run import Run

MOST_LISTED = 200


def saved_checkpoints(run: Run) -> list[dict[str, Any]]:
    """Return the checkpoints of a run that have a waybill, in the order they were saved."""
    return [_row(record) for record in run.evidence.log.checkpoints]


def checkpoint_page(run: Run, waybill: str, runs: Sequence[Path]) -> dict[str, Any]:
    """Return everything on the page of a checkpoint.

    Args:
        run: The run that saved it.
        waybill: SHA-256 of its waybill, which the run's log has.
        runs: Other runs that its family may need.
    """
    row = next(row for row in saved_checkpoints(run) if row["waybill"] == waybill)
    try:
        opened = open_checkpoint(row["where"], runs)
        if opened.waybill.sha256 != waybill:
            raise LedgerError(f"{row['where']} has another waybill by now: it was saved again, or changed.")
    except LadingError as error:
        return {**row, "problem": str(error), "tree": [], "totals": [], "files": None}
    return {**row, "problem": None, **_family(opened)}


def _family(opened: OpenedCheckpoint) -> dict[str, Any]:
    tree = [
        {
            "depth": depth,
            "name": Path(member.where).name or "a state without a waybill",
            "what": member.what,
            "problem": "" if again else member.problem,
            "run": member.run,
            "waybill": member.key if member.key in opened.relatives.waybills else None,
            "again": again,
        }
        for depth, member, again in itertools.islice(opened.relatives.tree(), MOST_LISTED)
    ]
    return {"tree": tree, "totals": opened.totals().dicts(), "files": len(opened.waybill.files)}


def _row(record: CheckpointRecord) -> dict[str, Any]:
    return {
        **vars(record),
        "name": Path(record.where).name,
        "saved": f"{time_of(int(record.time * 1000)):%Y-%m-%d %H:%M:%S}",
        "place": f"checkpoint/{record.waybill}",
    }
