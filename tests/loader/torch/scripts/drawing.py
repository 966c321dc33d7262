"""Train with data that draws random numbers, be killed twice, resume with another number of workers.

    python drawing.py FOLDER      prints the digests of the final weights: straight runs, then resumed ones

Every life is a forked process that a real ``kill -9`` ends, between two checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset

from lading.loader.torch.loader import Loader
from lading.runtime import random_state

STEPS, EVERY = 24, 5


class Noisy(Dataset):
    """Samples with noise of all three generators."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.manual_seed(index) if index % 7 == 0 else None
        noise = random.random() + np.random.rand()  # noqa: NPY002
        return torch.randn(6) + index + noise


class Run:
    """A model with dropout, its optimizer and its loader."""

    def __init__(self, workers: int) -> None:
        torch.manual_seed(0), np.random.seed(0), random.seed(0)  # noqa: NPY002
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.loader = Loader(Noisy(), 4, num_workers=workers, persistent_workers=workers == 2)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}

    def train(self, path: Path, killed_at: int) -> str:
        """Train to the end, or to a kill; return the digest of the weights."""
        while self.loader.step < STEPS:
            for batch in self.loader:
                own = random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002
                loss = (self.model(batch) * own).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if self.loader.step == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.loader.step % EVERY == 0:
                    saved = {name: part.state_dict() for name, part in self.parts.items()}
                    torch.save({**saved, "generators": random_state.capture()}, path)
                if self.loader.step == STEPS:
                    break
        return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())).hexdigest()


def life(folder: Path, name: str, workers: int, killed_at: int = -1) -> int:
    """Run one life in a process of its own, from the checkpoint that is there; return how it ended."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    path = folder / f"{name}.pt"
    run = Run(workers)
    if path.exists():
        saved = torch.load(path, weights_only=False)
        for key, part in run.parts.items():
            part.load_state_dict(saved[key])
        random_state.restore(saved["generators"])
    (folder / name).write_text(run.train(path, killed_at))
    os._exit(0)


def main(folder: Path) -> None:
    """Train straight and in three lives, for 0, 1 and 2 workers."""
    torch.set_num_threads(1)
    Run(0).train(folder / "first.pt", killed_at=-1)  # imports and compiles here, not in every life
    kills = []
    for workers in (0, 1, 2):
        assert life(folder, f"straight{workers}", workers) == 0
        kills.append(life(folder, f"killed{workers}", workers, killed_at=8))
        kills.append(life(folder, f"killed{workers}", (workers + 1) % 3, killed_at=17))
        assert life(folder, f"killed{workers}", (workers + 2) % 3) == 0
    digests = [(folder / f"{kind}{workers}").read_text() for kind in ("straight", "killed") for workers in (0, 1, 2)]
    print(json.dumps({"kills": kills, "weights": digests}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
