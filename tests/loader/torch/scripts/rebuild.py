"""What frameworks do to a loader, on several processes: ``rebuild.py OUT``; each row writes what it delivered."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import accelerate
import numpy as np
import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard
from accelerate.utils import DataLoaderConfiguration
from torch import distributed
from torch.utils.data import DataLoader

from lading import Columns, Ledger, Loader
from lading.errors import LadingError


def rebuilt(loader, **options):
    """Return a plain DataLoader of the loader's parts."""
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn, **options)


def prepared(loader, **config):
    """Return what Accelerate makes of it."""
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config)).prepare(loader)


def sharded_again(loader):
    """Return a loader that someone shards once more."""
    shard = BatchSamplerShard(loader.batch_sampler, 2, distributed.get_rank() if distributed.is_initialized() else 0)
    return DataLoader(loader.dataset, batch_sampler=shard, collate_fn=loader.collate_fn)


def fabric(loader):
    """Return what Fabric makes of it."""
    from lightning.fabric import Fabric

    return Fabric(accelerator="cpu").setup_dataloaders(loader)


def fabric_ddp(loader):
    """Return what Fabric makes of it where it knows of both processes, and may replace samplers."""
    from lightning.fabric import Fabric

    several = {"devices": 2, "strategy": "ddp"} if distributed.is_initialized() else {"devices": 1}
    made = Fabric(accelerator="cpu", **several)
    made.launch()
    return made.setup_dataloaders(loader, use_distributed_sampler=True)


def cut(loader):
    """Return a loader whose batches someone completes with repeats."""
    batches = [[*batch, 0] for batch in loader.batch_sampler]
    return DataLoader(loader.dataset, batch_sampler=batches, collate_fn=loader.collate_fn)


ROWS = {
    "itself": lambda loader: loader,
    "rebuilt": rebuilt,
    "default-collate": lambda loader: DataLoader(loader.dataset, batch_sampler=loader.batch_sampler),
    "wrong-sharded": sharded_again,
    "wrong-cut": cut,
    "wrong-batches": lambda loader: DataLoader(loader.dataset, batch_size=8, collate_fn=loader.collate_fn),
    "prepare": prepared,
    "split": lambda loader: prepared(loader, split_batches=True),
    "dispatch": lambda loader: prepared(loader, dispatch_batches=True),
    "uneven": lambda loader: prepared(loader, even_batches=False),
    "seedable": lambda loader: prepared(loader, use_seedable_sampler=True),
    "data-seed": lambda loader: prepared(loader, data_seed=7),
    "non-blocking": lambda loader: prepared(loader, non_blocking=True),
    "skip": lambda loader: accelerate.skip_first_batches(loader, 0),
    "skip-three": lambda loader: accelerate.skip_first_batches(loader, 3),
    "copied": copy.copy,
    "deep-copied": copy.deepcopy,
    "pickled": lambda loader: pickle.loads(pickle.dumps(loader)),
    "fabric": fabric,
    "fabric-ddp": fabric_ddp,
}


def run(out, name, change) -> str:
    """Return the numbers of the samples a row delivers, or that it was refused."""
    ledger = Ledger(out / name)
    loader = Loader({"data": Columns(x=np.arange(100))}, batch_size=8, seed=5)
    seen = []
    try:
        batches = change(loader)
        inner = batches if isinstance(batches, Loader) else loader
        inner.tracker = ledger
        for batch in batches:
            bill = inner.last_bill
            ledger.commit(bill)
            seen += batch["x"][~torch.from_numpy(bill.is_padding)].tolist()
    except LadingError as error:
        return f"refused: {error}"
    finally:
        ledger.close()
    return " ".join(map(str, seen))


def main() -> None:
    """Run every row on every rank."""
    torch.set_num_threads(1)
    out = Path(sys.argv[1])
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    for name, change in ROWS.items():
        found = run(out, name, change)
        (out / f"{name}.{rank}.txt").write_text(found)
        distributed.barrier()
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
