"""Departures from the plan as a row of ``batches`` holds them: one JSON text, written and read here."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from lading.errors import LedgerError
from lading.identity import Deviation
from lading.ledger.limits import LONGEST_REASON, readable
from lading.runtime.fields import COUNT, Fields, FieldTable, Origin, given

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
    items = origin.items(text)
    return [items.record(number).each(_FIELDS) for number in items]


_FIELDS: FieldTable = {
    "slot": COUNT,
    "kind": Fields.text,
    "dataset": COUNT,
    "index": COUNT,
    "substitute": given(COUNT),
    "reason": partial(Fields.text, longest=1 << 20),
}
