"""Runs to ask questions of, made in a moment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from lading.identity import World
from lading.ledger import Ledger
from lading.ledger.begun import read_begun, write_begun
from lading.order import Plan

PLAN = Plan.make({"code": 700, "prose": 301}, batch_size=16, seed=3)


def record(
    path: Path,
    steps: range,
    *,
    plan: Plan = PLAN,
    world_size: int = 1,
    close: bool = True,
    loaded: dict[str, Any] | None = None,
    **options,
) -> dict[str, Any]:
    """Record steps on all ranks as one attempt; with ``close=False`` as one that is killed after a flush.

    Returns:
        What a state taken at the end says; pass it as ``loaded`` to resume.
    """
    part = options.get("part_rows", {}).get("batches", len(steps) + 1)
    ledgers = [Ledger(path, plan, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
    for ledger in ledgers:
        ledger.begin(steps.start, loaded=loaded)
    for rank, ledger in enumerate(ledgers):
        for step in steps:
            bill = plan.bill(step, world=World(rank, world_size))
            ledger.deliver(bill)
            ledger.commit(bill, update=step, loss=4.0 - 0.01 * step + (3.0 if step == 70 else 0.0), lr=0.1)
            if (step + 1) % part == 0:
                ledger.flush()
        ledger.flush()
    mark = {**ledgers[0].mark(), "step": steps.stop}
    for ledger in ledgers:
        if close:
            ledger.close()
        else:
            leave(ledger)
    return mark


def leave(ledger: Ledger) -> None:
    """Forget a ledger without closing it: its files stay as a crash would leave them, and its process is no more."""
    folder = ledger._writer._folder
    ledger._finalizer.detach()
    ledger._writer, ledger._closed = None, True
    write_begun(folder, replace(read_begun(folder.begun), process=(999_999_999, 1)))
