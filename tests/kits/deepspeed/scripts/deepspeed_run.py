"""Runs of DsTrainer for the tests of the processes that hold them: ``deepspeed_run.py SCENARIO FOLDER [ARGUMENTS]``.

Started by ``deepspeed``, by ``torchrun`` and by ``python``; the tests read what is left on disk.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

os.environ.setdefault("DS_ACCELERATOR", "cpu")

from lading.kits.deepspeed import DsTrainer, DsTrainingArguments

SIZES = {"code": 40, "prose": 30, "maths": 21}
UPDATES = 14


class Numbers:
    """Points on a line with a slope of their own."""

    def __init__(self, size: int, slope: float):
        generator = torch.Generator().manual_seed(size)
        self.x = torch.randn(size, 4, generator=generator)
        self.y = slope * self.x.sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": self.y[index]}


class Net(nn.Module):
    """Takes no names; gives a loss a sample."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(7)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))

    def forward(self, x, y):
        return {"loss": (self.layers(x).squeeze(-1) - y) ** 2}


class Overflowing(Net):
    """Gives an infinite loss in one forward pass of the last rank, as half precision does now and then."""

    def __init__(self, at: int, rank: int):
        super().__init__()
        self.passes, self.at, self.rank = 0, at, rank

    def forward(self, x, y):
        loss = super().forward(x, y)["loss"]
        self.passes += 1
        return loss * float("inf") if (self.passes - 1, self.rank) == (self.at, 1) else loss


class Dying(Net):
    """Kills its process in one forward pass of rank 1; the launcher takes care of the others."""

    def __init__(self, at: int, rank: int, dropout: float):
        super().__init__(dropout)
        self.passes, self.at, self.rank = 0, at, rank

    def forward(self, x, y):
        if (self.passes, self.rank) == (self.at, 1):
            os.kill(os.getpid(), signal.SIGKILL)
        self.passes += 1
        return super().forward(x, y)


def data(scale: int = 1):
    """Return three datasets by name."""
    return {name: Numbers(size * scale, slope) for slope, (name, size) in enumerate(SIZES.items())}


def arguments(folder: Path, **changes):
    """Return what most scenarios say, with some changes."""
    common = {
        "global_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "max_steps": UPDATES,
        "learning_rate": 0.02,
        "logging_steps": 4,
        "save_steps": 5,
        "batch_tracker": True,
        "progress": False,
    }
    return DsTrainingArguments(str(folder), **{**common, **changes})


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def records(folder: Path) -> None:
    """Accumulation of 4 in bfloat16 with one overflow."""
    model = Overflowing(at=9, rank=rank())
    args = arguments(
        folder, gradient_accumulation_steps=4, max_steps=6, zero_stage=1, precision="bf16", save_steps=None
    )
    DsTrainer(model, args, data()).train()


def train(folder: Path, zero_stage: int, dropout: float, resume: bool) -> None:
    """Train to the end, then evaluate."""
    evaluated = {"code": Numbers(11, 1.0), "prose": Numbers(6, 2.0)}
    args = arguments(folder, zero_stage=zero_stage, per_device_eval_batch_size=4)
    trainer = DsTrainer(Net(dropout), args, data(), evaluated)
    trainer.train(resume_from_checkpoint=resume)
    metrics = trainer.evaluate()
    with torch.no_grad():
        model = trainer.engine.module.eval()
        losses = torch.cat([model(source.x, source.y)["loss"] for source in evaluated.values()])
    found = {**metrics, "expected": losses.mean().item(), "rows": len(losses)}
    (folder / f"evaluated_{rank()}.json").write_text(json.dumps(found))


def die(folder: Path, zero_stage: int, dropout: float, at: int) -> None:
    """Train until rank 1 is killed in a forward pass."""
    DsTrainer(Dying(at, rank(), dropout), arguments(folder, zero_stage=zero_stage), data()).train()


def main() -> None:
    torch.set_num_threads(1)
    given = [argument for argument in sys.argv[1:] if not argument.startswith("--")]  # deepspeed adds --local_rank
    scenario, folder = given[0], Path(given[1])
    if scenario == "records-and-die":
        records(folder / "records")
        die(folder / "zero0", zero_stage=0, dropout=0.0, at=int(given[2]))
    elif scenario == "whole-and-die":
        train(folder / "whole", zero_stage=1, dropout=0.2, resume=False)
        die(folder / "zero1", zero_stage=1, dropout=0.2, at=int(given[2]))
    elif scenario == "resume":
        stage = int(given[2])
        train(folder, zero_stage=stage, dropout=0.2 if stage else 0.0, resume=True)


if __name__ == "__main__":
    main()
