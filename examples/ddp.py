"""Plain PyTorch on any number of processes: kill it, start it again, ask what went into it.

torchrun --nproc-per-node 2 examples/ddp.py runs/ddp
python examples/ddp.py runs/ddp --updates 400        # resumes where it stopped, now alone
lading verify runs/ddp
lading where runs/ddp curves 17
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import nn

from lading import Columns, Loader
from lading.train.torch import process_group, train


def curve(samples: int, waves: float) -> Columns:
    """Return points of a sine."""
    x = torch.linspace(-1, 1, samples).unsqueeze(1)
    return Columns(x=x, y=torch.sin(waves * math.pi * x))


def losses_of(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return one loss for each row."""
    return ((model(batch["x"]) - batch["y"]) ** 2).mean(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("--updates", type=int, default=200)
    args = parser.parse_args()

    with process_group():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        sources = {"curves": curve(1000, waves=1), "waves": curve(500, waves=3)}
        # The global batch stays the same on any number of processes, so that a run can resume with more or fewer.
        loader = Loader(sources, global_batch_size=64, seed=1, drop_last=True)

        skipped = train(model, optimizer, loader, losses_of, args.run_dir, updates=args.updates, save_every=50)

        if loader.world.rank == 0:
            with torch.no_grad():
                means = {name: f"{losses_of(model, source.columns).mean():.4f}" for name, source in sources.items()}
            print(f"{args.updates} updates, {skipped} skipped; losses {means}. Ask: lading show {args.run_dir}")


if __name__ == "__main__":
    main()
