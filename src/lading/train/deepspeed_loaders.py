"""The two loaders of a trainer: one that repeats and drops a short tail, one that sees every sample once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lading.loader.loader import Loader
from lading.train.deepspeed_arguments import DsTrainingArguments


def training_loader(
    args: DsTrainingArguments, dataset: Any, collate_fn: Callable[..., Any] | None, policy: Any
) -> Loader:
    """Return the loader to train with; an incomplete global batch at the end of an epoch is dropped.

    Args:
        args: Sizes, order, workers.
        dataset: One dataset, or several by name.
        collate_fn: Makes a batch of a list of samples.
        policy: Chooses the mixture while the run goes on.
    """
    return Loader(
        dataset,
        args.per_device_train_batch_size if args.global_batch_size is None else None,
        global_batch_size=args.global_batch_size,
        seed=args.seed,
        shuffle=args.shuffle,
        weights=args.weights,
        policy=policy,
        drop_last=True,
        collate_fn=collate_fn,
        on_error=args.on_error,
        num_workers=args.dataloader_num_workers,
        allow_rebatch=args.allow_rebatch,
    )


def evaluation_loader(args: DsTrainingArguments, dataset: Any, collate_fn: Callable[..., Any] | None) -> Loader:
    """Return the loader to evaluate with: in order, every sample once.

    Args:
        args: Sizes, workers.
        dataset: One dataset, or several by name.
        collate_fn: Makes a batch of a list of samples.
    """
    return Loader(
        dataset,
        args.per_device_eval_batch_size or args.per_device_train_batch_size,
        shuffle=False,
        collate_fn=collate_fn,
        on_error=args.on_error,
        num_workers=args.dataloader_num_workers,
    )
