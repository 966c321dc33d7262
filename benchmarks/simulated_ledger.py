"""A ledger of many ranks without the ranks: the files that each of them would have left, written one after another.

The digests are those of the plan, so every question has its true answer. Syncing is left out: nobody waits for it.
"""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import sample_hashes
from lading.ledger import Ledger
from lading.ledger.begun import RUNNING, Begun, read_begun, write_begun
from lading.ledger.packed import RowBytes, layout
from lading.ledger.run_folder import RankFolder, RunFolder
from lading.ledger.tables import APPLIED
from lading.ledger.tail import TailWriter
from lading.order import Plan


def unsynced() -> AbstractContextManager[Any]:
    """Leave out the syncing: what a disk costs is not what is asked here."""
    return mock.patch("os.fsync", new=_no_sync)


def _no_sync(handle: int) -> None:
    """Do nothing; a Mock would keep every call."""


def simulated_plan(ranks: int, steps: int) -> Plan:
    """Return a plan of two datasets and one sample a rank and step."""
    return Plan.make({"code": 2 * ranks * steps, "prose": ranks * steps}, batch_size=ranks, seed=7)


def simulate(path: Path, ranks: int, steps: int) -> dict[str, Any]:
    """Write the ledger of one attempt whose ranks were all killed after ``steps`` steps: every row is in a tail.

    Returns:
        What a checkpoint of that attempt has, for the next one.
    """
    plan = simulated_plan(ranks, steps)
    with unsynced():
        begun = _opened(path, plan, ranks)
        digests, positions, epochs = _evidence(plan, ranks, steps)
        run = RunFolder(path)
        for rank in range(ranks):
            folder = run.rank(0, rank)
            folder.path.mkdir(exist_ok=True)
            write_begun(folder, replace(begun, rank=rank))
            _write_tail(folder, begun.launch, _rows(digests[:, rank], positions, epochs))
    return {"run": begun.run, "attempt": 0, "launch": begun.launch}


def _opened(path: Path, plan: Plan, ranks: int) -> Begun:
    """Open an attempt as rank 0 and leave it; return what a rank of it says that died."""
    ledger = Ledger(path, plan, rank=0, world_size=ranks)
    ledger.begin(0)
    folder = RunFolder(path).rank(0, 0)
    ledger.close()
    begun = read_begun(folder.begun)
    for file in folder.path.iterdir():
        file.unlink()
    nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    dead = {
        "state": RUNNING,
        "lines": 0,
        "manifest": nothing,
        "process": (999_999_999, 1),
        "rows": None,
        "rows_sha256": None,
    }
    return replace(begun, host=socket.gethostname(), **dead)


def _evidence(plan: Plan, ranks: int, steps: int) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Return the digests of every step and rank, and where each step is."""
    digests = np.empty((steps, ranks), np.int64)
    positions, epochs = [], []
    for step in range(steps):
        bill = plan.bill(step)
        hashes = sample_hashes(bill.position + bill.slots, bill.dataset_idx, bill.idx)
        digests[step] = hashes.view(np.int64)  # one sample a rank
        positions.append(bill.position)
        epochs.append(bill.epoch)
    return digests, positions, epochs


def _rows(digests: NDArray[np.int64], positions: list[int], epochs: list[int]) -> RowBytes:
    """Return a row a step: updates and losses that fall, a step every half second."""
    packing, losses = layout("batches"), np.linspace(4, 2, len(digests)).tolist()
    found = []
    for step, digest in enumerate(digests.tolist()):
        place = (step, step, epochs[step], None, positions[step], 1, digest, None)
        time = 1_700_000_000_000 + 500 * step
        found.append(packing.pack((*place, APPLIED, losses[step], time, None, None, None)))
    return packing.of_rows(found)


def _write_tail(folder: RankFolder, launch: str, rows: RowBytes) -> None:
    writer = TailWriter(folder.tail, 0, launch, folder.rank)
    writer.append({"batches": rows})
    writer.sync()
    writer.close()


def size_of(path: Path) -> tuple[int, int]:
    """Return the bytes and the number of files of a run."""
    sizes = [os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(path) for name in names]
    return sum(sizes), len(sizes)
