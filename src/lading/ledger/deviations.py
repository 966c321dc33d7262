"""Departures from the plan as a row of ``batches`` holds them: one JSON text, written and read here."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from lading.errors import LedgerError
from lading.identity import Deviation
from lading.ledger.limits import LONGEST_REASON, readable
from lading.runtime.fields import Fields, Items, Origin

_FEW_CHARACTERS = 80


def deviations_text(deviations: Iterable[Deviation]) -> str:
    """Return deviations as readers take them; their reasons are cut where they are too long."""
    origin = Origin("the bill's deviations", LedgerError)
    for longest in (LONGEST_REASON, _FEW_CHARACTERS, 0):  # of thousands in one step the texts may not fit together
        rows = [{**asdict(d), "reason": readable(d.reason, longest)} for d in deviations]
        text = json.dumps(rows, default=operator.index)
        try:
            deviations_from(text, origin)
        except LedgerError:
            if not longest:
                raise
        else:
            break
    return text


def deviations_from(text: str, origin: Origin) -> list[dict[str, Any]]:
    """Return the fields of each deviation, every one checked."""
    items = Items(origin.json(text), origin, "")
    return [_deviation(items.record(number)) for number in items]


def _deviation(fields: Fields) -> dict[str, Any]:
    return {
        "slot": fields.integer("slot", low=0),
        "kind": fields.text("kind"),
        "dataset": fields.integer("dataset", low=0),
        "index": fields.integer("index", low=0),
        "substitute": fields.maybe(Fields.integer, "substitute", low=0),
        "reason": fields.text("reason", longest=1 << 20),
    }
