"""Checkpoints to ask questions of, made in a moment: a run, and weights that are not weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lading.ledger import Ledger
from lading.order import Plan


def trained(
    run: Path,
    checkpoint: Path,
    steps: range,
    *,
    plan: Plan,
    base: Iterable[Path] = (),
    loaded: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train some steps and save a checkpoint with its waybill; return the state in it."""
    with Ledger(run, plan, base=base) as ledger:
        ledger.begin(steps.start, loaded=loaded)
        for step in steps:
            ledger.deliver(plan.bill(step))
            ledger.commit(plan.bill(step), update=step, loss=1.0)
        ledger.flush()  # as a loader does before a state
        state = {**(ledger.mark(steps.stop) or {}), "step": steps.stop}
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.bin").write_bytes(f"{run} {steps}".encode())
        ledger.checkpoint(checkpoint, state)
    return state


def plan_of(seed: int, **lengths: int) -> Plan:
    """Return a plan of small steps."""
    return Plan.make(lengths or {"corpus": 40}, batch_size=4, seed=seed)


def held(plan: Plan, steps: range) -> set[int]:
    """Return the samples of some steps of a plan with one dataset."""
    return {index for step in steps for _, index in plan.bill(step).samples}
