"""What a step held and what became of it: plan.bill, or the names of the step, and its rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lading.errors import ConfigError
from lading.identity import Bill, World, rank_of
from lading.identity.bill import observed_id
from lading.order.plan import Plan
from lading.report.evidence import Evidence
from lading.report.row_losses import losses_at
from lading.report.table import Table, schema_of
from lading.report.views import Views
from lading.report.where import PLANNED, expected_bill, fates_of, newest_plan, next_step
from lading.runtime.arrow import numbers
from lading.runtime.fields import html_table

CONTENT = schema_of("slot int64, rank int32, dataset int32, name string, index int64, note string, loss float64")
_NAMED = pa.schema(list(CONTENT)[:-1])
BATCH_ID = re.compile(r"e\d+-s(\d{1,18})-[0-9a-f]{8}")


@dataclass(frozen=True)
class StepRecord:
    """Everything known of one step.

    Attributes:
        step: Its number.
        batch_id: Its batch's id, as its bill had it.
        epoch: Its epoch.
        chunk: Its chunk, where there are chunks.
        fate: ``applied``, ``skipped``, ``delivered`` (and not used), or ``planned`` (not reached).
        attempt: The attempt that owns it; None where it is only planned.
        update: The optimizer update that used it.
        loss: Loss of that update.
        time: When its fate was decided, in ISO 8601.
        metrics: Further numbers.
        reason: Why it was skipped.
        digest: Digest of what was really delivered, as hex.
        expected: Digest of what the plan says, exceptions taken into account.
        samples: What it held: slot, rank, dataset, name, index, note, the loss that was committed for the row, and
            documents where they are known.
        exceptions: Departures from the plan.
        earlier: Fates in other attempts: rolled back, left behind, or used there as well (a replay).
        unnamed: Why documents of a dataset have no names, where its store should be and is not.
    """

    step: int
    batch_id: str | None
    epoch: int | None
    chunk: int | None
    fate: str
    attempt: int | None
    update: int | None
    loss: float | None
    time: str | None
    metrics: dict[str, float]
    reason: str | None
    digest: str | None
    expected: str | None
    samples: Table
    exceptions: list[dict[str, Any]]
    earlier: list[dict[str, Any]]
    unnamed: list[str] = field(default_factory=list)

    @property
    def matches(self) -> bool | None:
        """Whether the plan and the evidence agree; None where there is only one of them."""
        return None if self.digest is None or self.expected is None else self.digest == self.expected

    @property
    def agreement(self) -> str | None:
        """The same in words."""
        return {None: None, True: "as planned", False: "NOT as planned"}[self.matches]

    def _repr_html_(self) -> str:
        """Return what is known of the step and its samples, for notebooks."""
        names = ("fate", "loss", "update", "epoch", "attempt", "batch_id", "time", "reason", "digest")
        facts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        facts |= {} if self.agreement is None else {"against plan": self.agreement}
        rows = [list(pair) for pair in {"step": self.step, **facts, **self.metrics}.items()]
        return html_table(["", ""], rows) + self.samples._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return {**vars(self), "samples": self.samples.dicts(), "matches": self.matches}


def step_record(evidence: Evidence, views: Views, step: int) -> StepRecord:
    """Return everything known of a step."""
    if step < 0:
        raise ConfigError(f"step {step} is negative: steps count from 0.")
    records = fates_of(evidence, [step])
    owner = evidence.owner(step)
    known = records.get((owner, step)) if owner is not None else None
    plan = evidence.plan(owner) if known is not None and owner is not None else newest_plan(evidence)
    if known is None and plan is None:
        raise ConfigError(f"step {step} was not recorded: this run goes to step {next_step(evidence) - 1}.")
    fields = {**_unknown(), **(known or {})}
    world_size = evidence.attempts[owner].launch.world_size if known is not None and owner is not None else 1
    bill = expected_bill(plan, step, fields["exceptions"]) if plan is not None else None
    if plan is not None and bill is not None:
        samples = _bill_samples(bill, world_size, plan, fields["exceptions"])
        fields.update(epoch=bill.epoch, chunk=bill.chunk)
        named = bill.batch_id
    else:
        named = observed_id(fields["digest"], fields["epoch"], step, World(0, world_size))
        samples = _named_samples(evidence, views, owner, step)
    taken = ("epoch", "chunk", "fate", "update", "loss", "time", "metrics", "reason", "exceptions")
    return StepRecord(
        step=step,
        batch_id=named,
        attempt=owner if known is not None else None,
        digest=f"{known['digest']:016x}" if known is not None else None,
        expected=f"{bill.digest:016x}" if bill is not None else None,
        samples=_with_losses(evidence, samples, step, owner if known is not None else None),
        earlier=_earlier(records, owner),
        **{name: fields[name] for name in taken},
    )


def step_of_batch(ask: Callable[[int], StepRecord], batch_id: str) -> int:
    """Return the step of a batch; refuse an id that this run gave to none."""
    match = BATCH_ID.fullmatch(batch_id)
    if match is None:
        raise ConfigError(f"batch {batch_id!r}: expected an id as a bill has it, such as e0-s17-de2f4aab.")
    step = int(match[1])
    found = ask(step).batch_id
    if found != batch_id:
        raise ConfigError(
            f"batch {batch_id} is not in this run's history: its step {step} is {found}. The id is of another run, "
            f"plan (seed, data, batch size) or attempt. Ask that one, or for step {step}."
        )
    return step


def _with_losses(evidence: Evidence, samples: pa.Table, step: int, owner: int | None) -> Table:
    """Return the samples with the losses that were committed for their rows."""
    known = [] if owner is None else losses_at(evidence, step, numbers(samples["slot"])[0].tolist(), owner)
    return Table(samples.append_column(CONTENT.field("loss"), pa.array(known or [None] * len(samples), pa.float64())))


def _unknown() -> dict[str, Any]:
    """Return the fields of a step that was not recorded."""
    nothing = dict.fromkeys(("epoch", "chunk", "update", "loss", "time", "reason"))
    return {**nothing, "fate": PLANNED, "metrics": {}, "exceptions": []}


def _earlier(records: dict[tuple[int, int], dict[str, Any]], owner: int | None) -> list[dict[str, Any]]:
    """Return what became of a step in other attempts: rolled back, left behind, or used there as well."""
    return [
        {"attempt": attempt, "fate": found["fate"], "loss": found["loss"], "time": found["time"]}
        for (attempt, _), found in records.items()
        if attempt != owner or not found["owned"]
    ]


def _bill_samples(bill: Bill, world_size: int, plan: Plan, exceptions: list[dict[str, Any]]) -> pa.Table:
    notes = {e["slot"]: _note(e) for e in exceptions} | {d.slot: _note(vars(d)) for d in bill.deviations}
    slots = bill.slots
    ranks = rank_of(slots, plan.clock.batch_at(bill.step), world_size)
    names = [bill.names[d] for d in bill.dataset_idx.tolist()]
    columns = [slots, ranks, bill.dataset_idx, names, bill.idx, [notes.get(s, "") for s in slots.tolist()]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _NAMED, strict=True)], schema=_NAMED)


def _note(exception: dict[str, Any]) -> str:
    reason = f" ({exception['reason']})" if exception.get("reason") else ""
    if exception["kind"] == "skipped":
        return f"skipped{reason}"
    return f"in place of {exception['index']}{reason}"


def _named_samples(evidence: Evidence, views: Views, owner: int | None, step: int) -> pa.Table:
    views.create_samples()
    table = views.query(
        "SELECT slot::BIGINT AS slot, rank, dataset, index FROM recorded_samples WHERE step = ? AND attempt = ? "
        "ORDER BY slot",
        step,
        -1 if owner is None else owner,
    )
    labels = evidence.labels(table["dataset"].to_numpy())
    columns = [table["slot"], table["rank"], table["dataset"], pa.array(labels, pa.string()), table["index"]]
    return pa.table([*columns, pa.array([""] * len(table), pa.string())], schema=_NAMED)
