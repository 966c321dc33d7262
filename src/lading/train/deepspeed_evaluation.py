"""Evaluation that counts every sample exactly once, on any number of processes.

10 samples, batches of 4, 2 processes    0 1 2 3 | 4 5 6 7
                                         8 9 · · | · · · ·     · padding: no process hangs, none is counted
"""

from __future__ import annotations

import torch

from lading.loader.loader import Loader
from lading.train.deepspeed_forward import Arguments, loss_of
from lading.train.deepspeed_losses import ALL, Losses


@torch.no_grad()
def evaluate(model: torch.nn.Module, loader: Loader, arguments: Arguments, device: torch.device) -> dict[str, float]:
    """Return the mean loss, those of the datasets where the model gives a loss a sample, and the number of samples.

    A loss of one number is taken for the mean over the batch.

    Args:
        model: The model; left in the mode it was in.
        loader: What to evaluate on; left where it stands, so that every evaluation is the same.
        arguments: Turns batches into arguments.
        device: Where the model is.
    """
    losses = Losses(loader.plan.names, device)
    was_training = model.training
    model.eval()
    try:
        with loader.peeking():
            for batch, bill in loader.with_bills():
                if bill.num_samples:
                    args, kwargs = arguments(batch, bill)
                    losses.add(loss_of(model(*args, **kwargs), bill.num_samples), bill)
    finally:
        model.train(was_training)
    means = losses.take()
    of_datasets = {f"eval/loss/{name}": mean for name, mean in means.items() if name != ALL}
    return {"eval/loss": means[ALL], **of_datasets, "eval/samples": losses.num_samples}
