"""A rank of a mixture that a policy on counts steers; killed with kill -9 half-way, or resumed from a state."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from lading.kits.adaptive.policy.mixture import SteerToShares
from lading.loader.torch.loader import Loader
from lading.order.mixture.request import Mixture

LENGTHS = {"code": 900, "prose": 300, "web": 5000}
STEPS = 60


class Numbers(torch.utils.data.Dataset):
    """A map-style dataset, read in workers."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.tensor(index)}


def steered_loader(**options) -> Loader:
    """Make the loader: mixed by length at first, steered towards equal shares."""
    return Loader(
        {name: Numbers(n) for name, n in LENGTHS.items()},
        global_batch_size=96,
        seed=5,
        mixture=Mixture(
            temperature=1.0,
            epoch_samples=96 * STEPS,
            lookahead_steps=4,
            policy=SteerToShares(dict.fromkeys(LENGTHS, 1.0), every_steps=7),
        ),
        **options,
    )


def main(folder: Path, kill_after: int, resume: str) -> None:
    """Run to the end of the epoch, or to the bitter end."""
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    loader = steered_loader(num_workers=2 if resume == "-" else 0)
    if resume != "-":
        loader.load_state_dict(json.loads(Path(resume).read_text()))
    with (folder / f"names-{world_size}-{rank}.jsonl").open("w") as out:
        for batch, bill in loader.with_bills():
            assert batch["x"].tolist() == bill.idx.tolist()
            out.write(json.dumps([bill.step, bill.samples]) + "\n")
            out.flush()
            if bill.step + 1 == kill_after:
                (folder / f"state-{rank}.json").write_text(json.dumps(loader.state_dict()))
            if bill.step == kill_after + 3:
                dist.barrier()
                os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
