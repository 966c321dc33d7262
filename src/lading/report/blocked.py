"""The samples that could not be used as planned, and those that are used no more: since which step, and why.

bad                     skipped or replaced where it was planned; what came instead
born with the plan      since step 0
an event of the plan    since the step at which it acts, in the attempt that owns that step
asked for by hand       honoured by the next attempt: until then no step is named
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lading.identity import SampleId
from lading.ledger.lineage import blocked_by_hand
from lading.order.substitute import all_blocks
from lading.report.evidence import Evidence
from lading.report.table import Table, schema_of

BAD = schema_of(
    "dataset string, index int64, step int64, attempt int32, rank int32, slot int64, kind string, substitute int64, "
    "reason string, kept bool"
)
BLOCKED = "blocked"  # the reason of an exception that the plan made itself
BLOCKS = schema_of("dataset string, index int64, step int64, reason string")
Blocks = dict[SampleId, tuple[int | None, str]]
"""Since which step (None: from the next attempt on), and why."""


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


def blocks_of(evidence: Evidence) -> Blocks:
    """Return what history blocks, and what the next attempt will."""
    found: Blocks = {}
    by_hand = blocked_by_hand((*evidence.log.blocks, *evidence.log.forgets))
    for sample, step, reason in _honoured(evidence):
        if sample not in found:  # a state keeps no reasons: the log does
            found[sample] = step, reason or by_hand.get(sample, "")
    return {**{sample: (None, reason) for sample, reason in by_hand.items()}, **found}


def _honoured(evidence: Evidence) -> Iterator[tuple[SampleId, int, str]]:
    """Yield sample, step and reason of every block that the plans of history follow, in order of attempts."""
    for span in evidence.spans:
        plan = evidence.plan(span.attempt)
        blocks = [] if plan is None else all_blocks(plan.blocked, plan.events, plan.parts)
        for block in blocks:
            if span.stop is None or block.step < span.stop:  # else a resume undid it, or the next attempt has it, too
                yield from ((SampleId(block.dataset, index), block.step, block.reason) for index in block.indices)


def block_note(step: int | None, reason: str) -> str:
    """Return since when a sample is blocked, and why.

    >>> block_note(7, "broken markup"), block_note(None, "")
    ('blocked since step 7: broken markup', 'blocked from the next attempt on')
    """
    since = "blocked from the next attempt on" if step is None else f"blocked since step {step}"
    return f"{since}: {reason}" if reason else since


def block_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every blocked sample as a row: dataset, index, step, reason."""
    names = evidence.datasets
    return [
        {"dataset": names[sample.dataset], "index": sample.index, "step": step, "reason": reason or None}
        for sample, (step, reason) in sorted(blocks_of(evidence).items())
    ]
