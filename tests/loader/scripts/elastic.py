"""A rank that writes the names of every batch; killed with kill -9 half-way, or resumed from a state."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from lading.loader.torch.loader import Loader


class Squares(torch.utils.data.Dataset):
    """A map-style dataset, read in workers."""

    def __len__(self):
        return 101

    def __getitem__(self, index):
        return {"x": torch.tensor(index * index)}


def main(folder: Path, kill_after: int, resume: str, weights: str) -> None:
    """Run to the end of the epoch, or to the bitter end; ``weighted``: a sample comes as often as its index says."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    often = {"squares": range(101)} if weights == "weighted" else None
    workers = 1 if resume == "-" else 0
    loader = Loader({"squares": Squares()}, global_batch_size=12, seed=9, num_workers=workers, sample_weights=often)
    if resume != "-":
        loader.load_state_dict(json.loads(Path(resume).read_text()))
    with (folder / f"names-{world_size}-{rank}.jsonl").open("w") as out:
        for batch, bill in loader.with_bills():
            assert batch["x"].tolist() == [i * i for i in bill.idx.tolist()]
            out.write(json.dumps([bill.step, bill.batch_id, [s.index for s in bill.samples]]) + "\n")
            out.flush()
            if bill.step + 1 == kill_after:
                (folder / f"state-{rank}.json").write_text(json.dumps(loader.state_dict()))
            if bill.step == kill_after:
                dist.barrier()
                os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
