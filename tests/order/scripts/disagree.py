"""Two ranks whose loaders differ in one thing at a time, with and without a ledger; what each of them hears."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import torch.distributed as dist

from lading.errors import LadingError
from lading.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.order import plan_json
from lading.source.columns import Columns

ARGUMENTS = {"batch_size": 4, "seed": 1, "weights": [3, 1], "shuffle": True, "length": 90, "order_version": 1}
DIFFERENT = {"batch_size": 8, "seed": 2, "weights": [1, 1], "shuffle": False, "length": 91, "order_version": 99}


def listen(arguments: dict, ledger: Ledger | None) -> dict:
    """Make a loader and take its first batch; return the error, how long it took and how many batches came."""
    given = dict(arguments)
    data = {"code": Columns(x=np.arange(given.pop("length"))), "prose": Columns(x=np.arange(50))}
    batches, begun, error = 0, time.monotonic(), ""
    with mock.patch.object(plan_json, "ORDER_VERSION", given.pop("order_version")):
        try:
            for _ in Loader(data, tracker=ledger, **given):
                batches += 1
        except LadingError as found:
            error = f"{type(found).__name__}: {found}"
    return {"error": error, "seconds": time.monotonic() - begun, "batches": batches}


def main(folder: Path) -> None:
    """Run every case on this rank; write down what came of each."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found = {}
    for what in ("nothing", *DIFFERENT):
        changed = {what: DIFFERENT[what]} if rank == 1 and what in DIFFERENT else {}
        for kind in ("alone", "ledger"):
            ledger = Ledger(folder / f"run-{what}") if kind == "ledger" else None
            found[f"{what} {kind}"] = listen({**ARGUMENTS, **changed}, ledger)
            if ledger is not None:
                ledger.close()
    (folder / f"found-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
