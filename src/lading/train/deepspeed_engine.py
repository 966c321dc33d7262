"""DeepSpeed's engine: model, optimizer, learning rate and precision, as the arguments say."""

from __future__ import annotations

from typing import Any

import deepspeed
import torch

from lading.train.deepspeed_arguments import DsTrainingArguments
from lading.train.deepspeed_config import deepspeed_config
from lading.train.deepspeed_schedule import learning_rate_factor


def make_engine(model: torch.nn.Module, args: DsTrainingArguments, rows: int, updates: int) -> Any:
    """Return the engine around a model.

    Args:
        model: The model; in reduced precision its weights are converted.
        args: The training arguments.
        rows: Samples of a step on one process.
        updates: Updates of the whole run, for the learning rate.
    """
    config = deepspeed_config(args, rows)
    factor = learning_rate_factor(args, updates)

    def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=[p for p in model.parameters() if p.requires_grad],
        config=config,
        lr_scheduler=None if "scheduler" in config else schedule,
        dist_init_required=False,
    )
    return engine
