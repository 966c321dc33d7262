"""Save distributed checkpoints on several ranks, at once and in the background: ``torchrun ... dcp.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from lading import Columns, Ledger, Loader

folder = Path(sys.argv[1])
distributed.init_process_group("cpu:gloo")
mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
ledger = Ledger(folder / "run")
loader = Loader({"points": Columns(x=torch.arange(64))}, batch_size=4, seed=1, tracker=ledger)
weights = distribute_tensor(torch.arange(1024.0), mesh, [Shard(0)])
for _, bill in loader.with_bills():
    ledger.commit(bill, update=bill.step)
    if bill.step in (3, 5):
        state = loader.state_dict()
        path, content = folder / f"step-{bill.step + 1}", {"weights": weights, "loader": state}
        future = (
            dcp.async_save(content, checkpoint_id=path) if bill.step == 5 else dcp.save(content, checkpoint_id=path)
        )
        ledger.checkpoint(path, state, after=future if bill.step == 5 else None)
        if bill.step == 5:
            future.result()
distributed.barrier()
ledger.close()
distributed.destroy_process_group()
