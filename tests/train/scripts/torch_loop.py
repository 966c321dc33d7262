"""A run of the plain PyTorch loop, for the tests: ``torch_loop.py FOLDER STEP_AT_WHICH_RANK_1_DIES``."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np
import torch
from torch import nn

from lading import Columns, Loader
from lading.train.torch import process_group, train

UPDATES = 15


def parts(dropout: float = 0.0, **settings):
    """Return model, optimizer and loader, the same in every process."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))
    x = np.random.default_rng(0).normal(size=(53, 3)).astype(np.float32)
    sources = {"a": Columns(x=x[:30], y=x[:30].sum(1)), "b": Columns(x=x[30:], y=-x[30:].sum(1))}
    # 53 samples in batches of 7: shares of two processes differ, and the last batch of an epoch is short.
    loader = Loader(sources, global_batch_size=7, seed=3, **settings)
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), loader


def losses_of(model, batch):
    """Return one loss a row."""
    return (model(batch["x"]).squeeze(1) - batch["y"]) ** 2


def run(folder, updates: int = UPDATES, losses=losses_of, **settings) -> int:
    """Train with two steps an update and a checkpoint every four."""
    return train(*parts(**settings), losses, folder, updates=updates, steps_per_update=2, save_every=4)


def main() -> None:
    passes = 0
    torch.set_num_threads(1)

    def dying(model, batch):
        nonlocal passes
        passes += 1
        if os.environ["RANK"] == "1" and passes > int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return losses_of(model, batch)

    with process_group():
        run(sys.argv[1], losses=dying)


if __name__ == "__main__":
    main()
