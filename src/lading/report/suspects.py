"""Which samples of a step stand out: by their own loss, by how often they were used before, by their length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from lading.report.asked import AskedRun
from lading.report.evidence import Evidence
from lading.report.history import History
from lading.report.table import schema_of

EXPOSURES = schema_of(
    "slot int64, dataset string, index int64, earlier int64, last_step int64, length int64, loss float64, "
    "stands_out string"
)
Lengths = Callable[[str, int], int | None]
"""Says how long a sample of a dataset is, where its source is at hand."""


def exposures(
    run: AskedRun, step: int, samples: list[dict[str, Any]], lengths: Lengths | None = None
) -> list[dict[str, Any]]:
    """Return what is known of each sample of a step: earlier uses, length, own loss, and how it stands out.

    Args:
        lengths: Says how long they are; None: not known.
    """
    places = _places_before(run, step, [(row["dataset"], row["index"]) for row in samples])
    uses = _uses_of(run.steps, {step for found in places for step in found})
    rows = []
    for row, found in zip(samples, places, strict=True):
        earlier = [step for step in found for _ in range(uses.get(step, 0))]
        fields = {"slot": row["slot"], "dataset": row["name"], "index": row["index"], "loss": row.get("loss")}
        fields["length"] = None if lengths is None else lengths(row["name"], row["index"])
        rows.append({**fields, "earlier": len(earlier), "last_step": max(earlier, default=None)})
    words = _words(rows)
    return [{**row, "stands_out": word} for row, word in zip(rows, words, strict=True)]


def _places_before(run: AskedRun, step: int, samples: list[tuple[int, int]]) -> list[list[int]]:
    """Return, for each (dataset, index), the steps before a step at which it was planned or recorded."""
    if run.evidence.is_planned:
        return [_planned_before(run.evidence, step, *sample) for sample in samples]
    run.views.create_samples()
    run.views.register("asked", pa.table({"dataset": [d for d, _ in samples], "index": [i for _, i in samples]}))
    table = run.views.query(
        "SELECT dataset, index, step FROM samples JOIN asked USING (dataset, index) WHERE step < ? ORDER BY step", step
    )
    found: dict[tuple[int, int], list[int]] = {}
    for row in table.to_pylist():
        found.setdefault((row["dataset"], row["index"]), []).append(row["step"])
    return [found.get(sample, []) for sample in samples]


def _planned_before(evidence: Evidence, step: int, dataset: int, index: int) -> list[int]:
    """Return the steps of history before a step whose plan holds a sample: each span by the plan it followed."""
    found: set[int] = set()
    for span in evidence.spans:
        plan, last = evidence.plan(span.attempt), evidence.attempts[span.attempt].last_step
        stop = min(step, span.stop if span.stop is not None else step, -1 if last is None else last + 1)
        if plan is not None and span.start < stop:
            found |= {place.step for place in plan.where(dataset, index, span.start, stop)}
    return sorted(found)


def _uses_of(history: History, steps: set[int]) -> dict[int, int]:
    """Return how often history applied each of some steps: once, or as often as it was replayed."""
    applied = history.applied["step"]
    found, uses = np.unique(applied[np.isin(applied, list(steps))], return_counts=True)
    return dict(zip(found.tolist(), uses.tolist(), strict=True))


def ranked(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the samples of a step, those first that stand out most.

    By their own loss where training committed it; then by how far the number of earlier uses is from that of their
    neighbours, a first use among repeats or a repeat among first uses; then by length.
    """
    listed = list(rows)
    usual = {key: _median(listed, key) for key in ("earlier", "length")}

    def place(row: dict[str, Any]) -> tuple[float, float, float, int]:
        apart = [-abs(row[key] - usual[key]) if row[key] is not None else 0.0 for key in ("earlier", "length")]
        loss = row["loss"]  # what is no number stands above all, what is unknown below
        loss = -math.inf if loss is None else math.inf if math.isnan(loss) else loss
        return -loss, apart[0], apart[1], row["slot"]

    return sorted(listed, key=place)


def _median(rows: list[dict[str, Any]], key: str) -> float:
    return float(median([row[key] for row in rows if row[key] is not None] or [0]))


def _words(rows: list[dict[str, Any]]) -> list[str | None]:
    """Return in words how each sample differs from its neighbours in the step, or None."""
    usual, length, loss = (_median(rows, key) for key in ("earlier", "length", "loss"))
    words = []
    for row in rows:
        said = []
        if loss > 0 and row["loss"] is not None and row["loss"] > 2 * loss:
            said.append(f"loss {row['loss'] / loss:.1f} × usual")
        if abs(row["earlier"] - usual) >= 1:
            uses = {0: "first use", 1: "used once before"}
            said.append(uses.get(row["earlier"], f"used {row['earlier']} times before"))
        if row["length"] is not None and row["length"] > 2 * length:
            said.append("long")
        elif row["length"] is not None and 2 * row["length"] < length:
            said.append("short")
        words.append(", ".join(said) or None)
    return words
