"""The ``samples`` of a planned run: worked out from the plan for the steps a query asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lading.errors import ConfigError
from lading.report.evidence import Evidence
from lading.report.sightings import expected_bill

SAMPLES = pa.schema(
    [
        ("attempt", pa.int32()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("slot", pa.int32()),
        ("dataset", pa.int32()),
        ("index", pa.int64()),
        ("name", pa.string()),
    ]
)
MOST_ROWS = 20_000_000


def planned_samples(evidence: Evidence, steps: list[tuple[int, int]]) -> pa.Table:
    """Return the samples of (attempt, step) pairs, exceptions taken into account."""
    by_step: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for e in evidence.exceptions():
        by_step.setdefault((e["attempt"], e["step"]), []).append(e)
    columns: list[list[np.ndarray]] = [[] for _ in range(6)]
    rows = 0
    for attempt, step in steps:
        plan = evidence.plan(attempt)
        if plan is None:
            continue
        bill = expected_bill(plan, step, by_step.get((attempt, step), ()))
        real, count = bill.is_real, bill.num_samples
        rows += count
        if rows > MOST_ROWS:
            raise ConfigError(
                f"the samples of these {len(steps)} steps are more than {MOST_ROWS} rows. Ask for fewer steps: "
                "run.sql(query, steps=(first, stop)), or --steps first:stop."
            )
        world_size = evidence.attempts[attempt].launch.world_size
        ranks = ((bill.slots + 1) * world_size - 1) // plan.clock.batch_at(step)
        values = (np.full(count, attempt), ranks[real], np.full(count, step), bill.slots[real])
        for column, value in zip(columns, (*values, bill.dataset_idx[real], bill.idx[real]), strict=True):
            column.append(value)
    arrays = [np.concatenate(c) if c else np.empty(0, dtype=np.int64) for c in columns]
    names = pa.DictionaryArray.from_arrays(pa.array(arrays[4].astype(np.int32)), list(evidence.description.datasets))
    typed = [pa.array(a, f.type) for a, f in zip(arrays, list(SAMPLES)[:6], strict=True)]
    return pa.table([*typed, names.cast(pa.string())], schema=SAMPLES)
