"""The loaders of ``DsTrainer``: training repeats and drops a short tail, evaluation sees all samples once, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lading.errors import ConfigError
from lading.kits.deepspeed.arguments import DsTrainingArguments
from lading.loader.adapting import Adapting, curriculum
from lading.loader.request import Resume
from lading.loader.torch.loader import Loader
from lading.order.mixture.request import Mixture


def training_loader(
    args: DsTrainingArguments, dataset: Any, collate_fn: Callable[..., Any] | None, policy: Any
) -> Loader:
    """Return the loader to train with; an incomplete global batch at the end of an epoch is dropped."""
    return Loader(
        dataset,
        args.per_device_train_batch_size if args.global_batch_size is None else None,
        global_batch_size=args.global_batch_size,
        seed=args.seed,
        shuffle=args.dataloader_shuffle,
        mixture=_mixture(args, policy),
        sample_weights=args.sample_weights,
        chunk_batches=args.train_chunk_size,
        drop_last=True,
        collate_fn=collate_fn,
        on_bad_sample=args.on_bad_sample,
        **_workers(args),
        on_resume=Resume(rebatch=args.allow_rebatch, changed_plan=args.allow_changed_plan),
    )


def evaluation_loader(args: DsTrainingArguments, dataset: Any, collate_fn: Callable[..., Any] | None) -> Loader:
    """Return the loader to evaluate with: in order, every sample once."""
    return Loader(
        dataset,
        args.per_device_eval_batch_size or args.per_device_train_batch_size,
        seed=args.seed,
        shuffle=args.eval_dataloader_shuffle,
        collate_fn=collate_fn,
        on_bad_sample=args.on_bad_sample,
        **_workers(args),
    )


def _mixture(args: DsTrainingArguments, policy: Any) -> Mixture | Adapting:
    if args.curriculum is None:
        return Mixture(args.weights, policy=policy)
    if args.weights is not None or policy is not None:
        raise ConfigError("curriculum and weights (or a policy) were both given: each says what is drawn when.")
    return curriculum(args.curriculum)


def _workers(args: DsTrainingArguments) -> dict[str, Any]:
    """Return how batches are read ahead, as both loaders take it."""
    return {
        "num_workers": args.dataloader_num_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "pin_memory": args.dataloader_pin_memory,
    }
