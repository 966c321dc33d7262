"""A trainer for torchrun: a Lading loader with the ledger as its tracker, a checkpoint every 10 steps.

    torchrun --nproc-per-node=2 torchrun_trainer.py FOLDER [kill]

With ``kill`` it never ends by itself: it waits at step 45 for someone to kill a rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from lading.ledger import Ledger
from lading.loader import Loader

STEPS, EVERY = 60, 10


def main(folder: Path, waits: bool) -> None:
    """Train, or wait to be killed."""
    dist.init_process_group("gloo")
    data = [{"x": torch.tensor([float(i)])} for i in range(240)]
    ledger = Ledger(folder / "run")
    loader = Loader(data, global_batch_size=12, seed=4, tracker=ledger)
    saved = folder / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))
    while loader.step < STEPS:
        for batch, bill in loader.with_bills():
            total = batch["x"].sum()
            dist.all_reduce(total)
            ledger.commit(bill, update=bill.step, loss=total)
            if (bill.step + 1) % EVERY == 0:
                save(loader, saved)
            if waits and bill.step == 45:
                (folder / f"rank-{dist.get_rank()}.pid").write_text(str(os.getpid()))
                time.sleep(60)
    ledger.close()
    dist.destroy_process_group()


def save(loader: Loader, path: Path) -> None:
    """Save a checkpoint: every rank takes the state (which flushes its ledger), rank 0 writes it."""
    state = loader.state_dict()
    dist.barrier()
    if dist.get_rank() == 0:
        aside = path.with_suffix(".tmp")
        aside.write_text(json.dumps(state))
        os.replace(aside, path)
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "kill" in sys.argv[2:])
