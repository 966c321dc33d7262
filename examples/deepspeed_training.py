"""DeepSpeed with records of what every update was made of, and a mixture that follows the losses.

deepspeed --num_gpus 2 examples/deepspeed_training.py runs/ds      # DS_ACCELERATOR=cpu in front, without GPUs
python examples/deepspeed_training.py runs/ds --resume --max-steps 120
lading verify runs/ds
lading mix runs/ds
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import nn

from lading import Columns, DsTrainer, DsTrainingArguments, FollowLosses


class Net(nn.Module):
    """A small network whose ``forward`` takes the columns of a batch and returns one loss for each sample."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": ((self.layers(x) - y) ** 2).mean(1)}


def curve(samples: int, waves: float) -> Columns:
    """Return points of a sine."""
    x = torch.linspace(-1, 1, samples).unsqueeze(1)
    return Columns(x=x, y=torch.sin(waves * math.pi * x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir")
    parser.add_argument("--max-steps", type=int, default=80)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--local_rank", help="added by DeepSpeed's launcher")
    given = parser.parse_args()

    args = DsTrainingArguments(
        given.run_dir,
        global_batch_size=128,
        gradient_accumulation_steps=2,
        max_steps=given.max_steps,
        learning_rate=1e-2,
        weights={"slow": 1, "quick": 1, "quicker": 1},
        batch_tracker=True,
        save_steps=20,
        eval_steps=40,
    )
    train_data = {"slow": curve(4000, 1), "quick": curve(3000, 3), "quicker": curve(2000, 6)}
    eval_data = {name: curve(101, waves) for name, waves in [("slow", 1), ("quick", 3), ("quicker", 6)]}
    policy = FollowLosses(every_steps=8, strength=2.0)
    trainer = DsTrainer(Net(), args, train_data, eval_data, policy=policy)

    trainer.train(resume_from_checkpoint=given.resume)
    metrics = trainer.evaluate()

    if trainer.world.rank == 0:
        print({name: round(value, 4) for name, value in metrics.items()})
        print(f"records: {given.run_dir}/batch_tracker_rank_00.jsonl; ask: lading mix {given.run_dir}")


if __name__ == "__main__":
    main()
