"""Random numbers of a process: seeded at the start, kept in checkpoints, restored on resume.

Dropout and the like go on as if nothing had happened, as long as the number
of processes stays the same. Order needs none of this: it is the plan's.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from deepspeed.accelerator import get_accelerator

from lading.identity.hashing import key64


def seed_random(seed: int, rank: int) -> None:
    """Seed every generator of this process, differently on each rank."""
    own = key64(seed, "random", rank)
    torch.manual_seed(own >> 1)
    random.seed(own)
    np.random.seed(own % 2**32)  # noqa: NPY002 - users' code may still draw from the global generator


def save_random(folder: Path, rank: int) -> None:
    """Write the state of every generator of this process into a checkpoint."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # type: ignore[misc]  # noqa: NPY002
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "device": get_accelerator().get_rng_state(),
        "python": {"version": version, "words": torch.tensor(words), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "rest": [int(position), int(has_gauss), float(cached)],
        },
    }
    torch.save(state, _path(folder, rank))


def restore_random(folder: Path, rank: int) -> bool:
    """Restore the generators of this process; False where a checkpoint was written by fewer processes."""
    path = _path(folder, rank)
    if not path.exists():
        return False
    state = torch.load(path, weights_only=True)
    torch.set_rng_state(state["torch"])
    get_accelerator().set_rng_state(state["device"])
    python, numpy = state["python"], state["numpy"]
    random.setstate((python["version"], tuple(python["words"].tolist()), python["gauss"]))
    keys = numpy["keys"].numpy().astype(np.uint32)
    np.random.set_state((numpy["name"], keys, *numpy["rest"]))  # noqa: NPY002
    return True


def _path(folder: Path, rank: int) -> Path:
    return folder / f"random_rank_{rank:02d}.pt"
