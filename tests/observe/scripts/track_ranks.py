"""Two ranks of a real process group: track, a tagged stream, and an audit; each rank writes what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lading


def main(folder: Path) -> None:
    """Watch, read and audit as one rank among several."""
    dist.init_process_group("gloo")
    data = TensorDataset(torch.arange(24))
    stream = lading.TaggedIterableDataset(lambda: iter(range(11)), 2)
    plain = DataLoader(data, 4, sampler=DistributedSampler(data))
    tracked = lading.track(plain, run=folder / "run", names=["numbers"])
    bills, shown = [], []
    for epoch in range(2):
        plain.sampler.set_epoch(epoch)
        for batch, bill in tracked.with_bills():
            bills.append((bill.batch_id, bill.slots.tolist(), bill.idx.tolist()))
            shown.append(batch[0].tolist())
    tracked.close()
    dealt = [(ids, number) for _, ids, number in DataLoader(stream, batch_size=None, num_workers=2)]
    seen = {
        "bills": bills,
        "shown": shown,
        "stream": dealt,
        "faulty": [f.to_dict() for f in lading.audit(DataLoader(data, 4, shuffle=True))],
        "sound": [f.to_dict() for f in lading.audit(plain, set_epoch=True)],
        "own rank only": [f.fault for f in lading.audit(DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0)))],
    }
    (folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
