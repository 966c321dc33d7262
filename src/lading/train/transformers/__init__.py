"""Hugging Face's ``Trainer`` and TRL's trainers, accounted for with one line.

    trainer = Trainer(model, args, train_dataset=data)
    account(trainer, "runs/7")              # the line
    trainer.train(resume_from_checkpoint=...)

The order is the plan's, every update is committed with its loss and gradient
norm, checkpoints carry the state, and Trainer's own resume is exact.
"""

from lading.train.transformers.account import account
from lading.train.transformers.accounted import LadingTrainerMixin

__all__ = ["LadingTrainerMixin", "account"]
