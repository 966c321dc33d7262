"""A rank that writes the names of every batch; killed with kill -9 half-way, or resumed from a state."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from itertools import zip_longest
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


def main(folder: Path, kill_after: int, resumes: bool) -> None:
    """Run two loaders to the end of the epoch, or to the bitter end.

    ``weighted``: a sample comes as often as its index says.
    """
    dist.init_process_group("gloo")
    options = {"global_batch_size": 12, "seed": 9, "num_workers": 0 if resumes else 1}
    often = {"plain": None, "weighted": {"squares": range(101)}}
    loaders = {kind: Loader({"squares": Squares()}, sample_weights=often[kind], **options) for kind in often}
    if resumes:
        for kind, loader in loaders.items():
            loader.load_state_dict(json.loads((folder / f"state-{kind}-0.json").read_text()))
    for steps in zip_longest(*(noted(loader, folder / kind) for kind, loader in loaders.items())):
        for step, (kind, loader) in zip(steps, loaders.items(), strict=True):
            if step is not None and step + 1 == kill_after:
                (folder / f"state-{kind}-{dist.get_rank()}.json").write_text(json.dumps(loader.state_dict()))
        if kill_after in steps:
            dist.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    dist.destroy_process_group()


def noted(loader: Loader, out: Path) -> Iterator[int]:
    """Yield the steps of a loader, the names of each batch written."""
    with Path(f"{out}-{dist.get_world_size()}-{dist.get_rank()}.jsonl").open("w") as file:
        for batch, bill in loader.with_bills():
            assert batch["x"].tolist() == [i * i for i in bill.idx.tolist()]
            file.write(json.dumps([bill.step, bill.batch_id, [s.index for s in bill.samples]]) + "\n")
            file.flush()
            yield bill.step


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "resumes")
