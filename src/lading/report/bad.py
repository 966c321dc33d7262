"""The samples that could not be used as planned, and where: bad ones, skipped or replaced."""

from __future__ import annotations

import pyarrow as pa

from lading.report.evidence import Evidence
from lading.report.table import Table

BAD = pa.schema(
    [
        ("dataset", pa.string()),
        ("index", pa.int64()),
        ("step", pa.int64()),
        ("attempt", pa.int32()),
        ("rank", pa.int32()),
        ("slot", pa.int64()),
        ("kind", pa.string()),
        ("substitute", pa.int64()),
        ("reason", pa.string()),
        ("kept", pa.bool_()),
    ]
)
BLOCKED = "blocked"


def bad_samples(evidence: Evidence) -> Table:
    """Return every bad sample: where it was planned, what came instead, why, and whether history has that step."""
    names = evidence.datasets
    rows = []
    for e in evidence.exceptions():
        if e["reason"] == BLOCKED:
            continue
        span = evidence.span(e["attempt"])
        kept = span is not None and e["step"] in span
        name = names[e["dataset"]] if e["dataset"] < len(names) else str(e["dataset"])
        rows.append({**e, "dataset": name, "kept": kept})
    rows.sort(key=lambda row: (row["step"], row["attempt"], row["slot"]))
    return Table.of([{name: row[name] for name in BAD.names} for row in rows], BAD)
