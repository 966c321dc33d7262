"""Write the golden run anew: only after a decision to change LEDGER_VERSION or ORDER_VERSION.

python tests/ledger/make_golden.py tests/ledger/golden/v3
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from lading.identity import Deviation, World
from lading.ledger import Ledger
from lading.order import Plan

PLAN = Plan.make({"code": 70, "prose": 31}, batch_size=8, seed=3)


def planned(path: Path) -> None:
    """Two attempts on one and two ranks: applied, skipped, rolled back, an exception, and a tail that a crash left."""
    with Ledger(path, PLAN) as ledger:
        for step in range(12):
            bill = PLAN.bill(step)
            if step == 3:
                index = bill.idx.copy()
                gone = Deviation(2, "substituted", int(bill.dataset_idx[2]), int(index[2]), 5, "unreadable")
                index[2] = 5
                bill = bill.replace(idx=index, deviations=(gone,))
            ledger.deliver(bill)
            if step == 4:
                ledger.skip(bill, "overflow")
            else:
                losses = [0.5 * row for row in range(len(bill))] if step == 2 else None
                ledger.commit(bill, update=step, loss=1.5, lr=0.25, row_losses=losses)
        ledger.flush()
        state = {**ledger.mark(), "step": 10}
    ledgers = [Ledger(path, PLAN, rank=rank, world_size=2) for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        ledger.begin(10, loaded=state)
        for step in range(10, 15):
            ledger.commit(PLAN.bill(step, world=World(rank, 2)), loss=float(rank))
        ledger.flush()
        ledger._finalizer.detach()  # as a crash leaves it
        ledger._writer, ledger._closed = None, True


def observed(path: Path) -> None:
    """Names and content kept."""
    with Ledger(path, names=PLAN.names, record="content") as ledger:
        for step in range(5):
            bill = PLAN.bill(step)
            ledger.deliver(bill, {"x": bill.idx})
            ledger.commit(bill)


if __name__ == "__main__":
    socket.gethostname = lambda: "golden"
    planned(Path(sys.argv[1]) / "planned")
    observed(Path(sys.argv[1]) / "observed")
