"""Runs to ask questions of, made in a moment."""

from __future__ import annotations

from pathlib import Path

from lading.identity import World
from lading.ledger import Ledger
from lading.order import Plan

PLAN = Plan.make({"code": 700, "prose": 301}, batch_size=16, seed=3)


def record(path: Path, steps: range, *, plan: Plan = PLAN, world_size: int = 1, close: bool = True, **options) -> None:
    """Record steps on all ranks as one attempt; with ``close=False`` as one that is killed after a flush."""
    part = options.get("part_rows", {}).get("batches", len(steps) + 1)
    for rank in range(world_size):
        ledger = Ledger(path, plan, rank=rank, world_size=world_size, **options)
        for step in steps:
            bill = plan.bill(step, world=World(rank, world_size))
            ledger.deliver(bill)
            ledger.commit(bill, update=step, loss=4.0 - 0.01 * step + (3.0 if step == 70 else 0.0), lr=0.1)
            if (step + 1) % part == 0:
                ledger.flush()
        ledger.flush()
        if close:
            ledger.close()
        else:
            leave(ledger)


def leave(ledger: Ledger) -> None:
    """Forget a ledger without closing it: its files stay as a crash would leave them."""
    ledger._finalizer.detach()
    ledger._writer, ledger._closed = None, True
