"""Why did something happen at this step? Everything that is known of it, side by side.

The samples of the step, the share of each dataset against the plan at that step,
how often each sample was seen before, and the losses around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lading.ledger.events import VALIDATED
from lading.order.decided import AdaptiveEvent
from lading.order.event import Block, Event, Rebatch, ResumeBase, Reweight
from lading.order.plan import Plan
from lading.report.asked import AskedRun
from lading.report.evidence import Evidence
from lading.report.losses import SPIKE_WINDOW, spike_scores
from lading.report.shares import SHARES, step_shares
from lading.report.step import StepRecord
from lading.report.suspects import EXPOSURES, Lengths, exposures, ranked
from lading.report.table import Table, schema_of

DECISIONS = schema_of("step int64, kind string, decided string, reason string")
_MOST_DECISIONS, _MOST_SHARES = 12, 8


@dataclass(frozen=True)
class Explanation:
    """Everything around one step.

    Attributes:
        record: The step itself.
        shares: Samples of each dataset in it, against what was to be expected there; see ``lading.report.shares``.
        exposures: How often each sample had been applied before, when last, and whether it stands out.
        around: Losses of the steps around it.
        score: How far its loss stands above those before it, in robust deviations.
        usual_loss: Median loss of the steps before it.
        decisions: What changed the plan before it, and what was validated, the newest last: at most 12.
    """

    record: StepRecord
    shares: Table
    exposures: Table
    around: Table
    score: float | None
    usual_loss: float | None
    decisions: Table

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The samples, those first that stand out most."""
        return ranked(self.exposures.dicts())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        tables = {name: getattr(self, name).dicts() for name in ("shares", "exposures", "around", "decisions")}
        return {**self.record.to_dict(), **tables, "score": self.score, "usual_loss": self.usual_loss}


def explain(run: AskedRun, step: int, around: int, lengths: Lengths | None = None) -> Explanation:
    """Gather what is known of a step and the steps around it."""
    record = run.step(step)
    losses = run.losses().arrow
    steps = losses["step"].to_numpy()
    near = losses.filter(pa.array((steps >= step - around) & (steps <= step + around)))
    places = np.flatnonzero(steps == step)
    score = usual = None
    if len(places):
        place = int(places[-1])
        before = losses["loss"].to_numpy()[max(0, place - SPIKE_WINDOW) : place + 1].astype(np.float64)
        score, usual = (float(values[-1]) for values in spike_scores(before, SPIKE_WINDOW))
    return Explanation(
        record=record,
        shares=Table.of(step_shares(run, step, record.samples["name"]), SHARES),
        exposures=Table.of(exposures(run, step, record.samples.dicts(), lengths), EXPOSURES),
        around=Table(near),
        score=score,
        usual_loss=usual,
        decisions=Table.of(decisions(run.evidence, step)[-_MOST_DECISIONS:], DECISIONS),
    )


def decisions(evidence: Evidence, before: int | None = None) -> list[dict[str, Any]]:
    """Return what changed the plan of a run, and what was validated, in the order of steps.

    Args:
        before: Leave out what acts after this step.
    """
    rows: list[dict[str, Any]] = []
    for span in evidence.spans:
        plan = evidence.plan(span.attempt)
        # An event belongs to the attempt that owns the step it acts at: a state carries what acts after it.
        for e in () if plan is None else plan.events:
            if plan is not None and not isinstance(e, ResumeBase) and e.step in span:
                rows.append(
                    {
                        "step": e.step,
                        "kind": e.kind,
                        "decided": decided(e, plan),
                        "reason": str(getattr(e, "reason", "")) or None,
                    }
                )
        for row in evidence.event_rows(span.attempt):
            if row.kind == VALIDATED and span.start < row.step and (span.stop is None or row.step <= span.stop):
                rows.append({"step": row.step, "kind": row.kind, "decided": _validated(row.fields), "reason": None})
    kept = [row for row in rows if before is None or row["step"] <= before]
    return sorted(kept, key=lambda row: row["step"])


def decided(event: Event, plan: Plan) -> str:
    """Return what an event of a plan decided, in a few words."""
    if isinstance(event, Reweight):
        total = sum(event.weights)
        ranked = sorted(zip(event.weights, plan.source_names, strict=True), key=lambda pair: -pair[0])
        shares = ", ".join(f"{name} {100 * weight / total:.3g} %" for weight, name in ranked[:_MOST_SHARES])
        return f"{shares}{f' and {len(ranked) - _MOST_SHARES} more' if len(ranked) > _MOST_SHARES else ''}"
    if isinstance(event, Rebatch):
        chunks = "" if event.chunk_batches is None else f", chunks of {event.chunk_batches}"
        return f"batches of {event.global_batch_size}{chunks}"
    if isinstance(event, AdaptiveEvent):
        return event.decided
    if not isinstance(event, Block):
        return event.kind
    return f"{len(event.indices)} sample{'s' * (len(event.indices) != 1)} of {plan.names[event.dataset]}"


def _validated(fields: Mapping[str, Any]) -> str:
    metric, on = fields.get("metric"), fields.get("on") or {}
    steps = f" on steps {on['first_step']} to {on['stop_step'] - 1}" if on else ""
    return f"validated{steps}: {'nothing measured' if metric is None else f'{metric:.4g}'}"
