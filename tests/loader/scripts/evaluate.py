"""Distributed evaluation: every sample counted once, no rank hangs; and DCP keeps the loader's state."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from lading.loader.torch.loader import Loader
from lading.source.columns import Columns


def gathered_by_accelerate(data: Columns) -> list[float]:
    """Return what Accelerate's metrics see of a prepared loader."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    prepared = accelerator.prepare(Loader(data, 3, shuffle=False))
    return torch.cat([accelerator.gather_for_metrics(batch["x"]) for batch in prepared]).tolist()


def main(folder: Path) -> None:
    """Count samples in three ways and save a state."""
    dist.init_process_group("gloo")
    data = Columns(x=np.arange(21, dtype=np.float32))
    counted, total = torch.zeros(()), torch.zeros(())
    for batch in Loader(data, 3, shuffle=False):
        real = ~batch["is_padding"]
        sums = torch.stack([real.sum().float(), batch["x"][real].sum()])
        dist.all_reduce(sums)
        counted, total = counted + sums[0], total + sums[1]

    loader = Loader(data, 2)
    loader.block("data", [5])
    it = iter(loader)
    next(it)
    dcp.save({"loader": loader.state_dict()}, checkpoint_id=folder / "dcp")
    other = Loader(data, 2)
    state = {"loader": other.state_dict()}
    dcp.load(state, checkpoint_id=folder / "dcp")
    other.load_state_dict(state["loader"])
    assert other.state_dict() == loader.state_dict() and other.plan.events

    gathered = gathered_by_accelerate(data)
    if dist.get_rank() == 0:
        result = {"counted": int(counted), "total": float(total), "accelerate": gathered}
        (folder / "result.json").write_text(json.dumps(result))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
