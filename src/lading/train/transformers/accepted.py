"""What ``account`` takes, and what would go behind the plan: refused before the trainer is touched, by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from torch.utils.data import RandomSampler
from transformers import Trainer

from lading.errors import ConfigError
from lading.ledger.ledger import Ledger
from lading.runtime.imports import is_a

# Trainers that train on rollouts: they generate, prepare, score and compute losses in methods of the same names.
_MAKE_ROLLOUTS = ("trl.trainer.grpo_trainer:GRPOTrainer", "trl.trainer.rloo_trainer:RLOOTrainer")
# Others that make their samples while they train, by what they have or what they are.
_GENERATE = (
    "_generate_and_score_completions",
    "_generate",
    "_generate_student_completions",
    "generate_on_policy_outputs",
)
_ASYNCHRONOUS = (
    "trl.experimental.async_grpo.async_grpo_trainer:AsyncGRPOTrainer",
    "trl.experimental.async_distillation.async_distillation_trainer:AsyncDistillationTrainer",
    "trl.experimental.a2po.a2po_trainer:A2POTrainer",
)
# Options of a Loader that a Trainer decides, and where.
_ELSEWHERE = {
    "batch_size": "per_device_train_batch_size",
    "global_batch_size": "per_device_train_batch_size",
    "seed": "data_seed",
    "drop_last": "dataloader_drop_last",
    "num_workers": "dataloader_num_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "persistent_workers": "dataloader_persistent_workers",
    "pin_memory": "dataloader_pin_memory",
}
_NOWHERE = {
    "collate_fn": "the trainer's data_collator makes the batches",
    "on_bad_sample": "the trainer reads the samples, and one that cannot be read is an error. Leave such samples out "
    "of the dataset, or block them",
    "tracker": "the run is the tracker",
    "world": "the trainer knows its processes",
    "names": "numbers travel beside the batch and are taken out before the model",
    "prefetch": "the trainer's DataLoader fetches",
}


def check_account(trainer: Any, run: Any, options: Mapping[str, Any]) -> None:
    """Refuse what is no trainer, no run, or an option that a Trainer decides itself."""
    if not isinstance(trainer, Trainer):
        raise ConfigError(
            f"account() was given a {type(trainer).__name__}: expected a transformers.Trainer, or one of TRL's. Write "
            "account(Trainer(model, args, train_dataset=...), run); a loop of your own takes a lading.Loader, or "
            "lading.track."
        )
    if not isinstance(run, str | os.PathLike | Ledger) and not hasattr(run, "commit"):
        raise ConfigError(f"run is {run!r}: expected the folder of the run, or a lading.Ledger.")
    for name in options:
        if name in _ELSEWHERE:
            raise ConfigError(
                f"account() has no {name}=: the trainer decides it. Set TrainingArguments.{_ELSEWHERE[name]}."
            )
        if name in _NOWHERE:
            raise ConfigError(f"account() has no {name}=: {_NOWHERE[name]}.")


def check_trainer(trainer: Any, ours: type) -> None:
    """Refuse what would reorder or resize batches behind the plan, or make the samples while it trains.

    Args:
        ours: The class that gives it the plan's order.
    """
    _check_arguments(trainer.args)
    if makes_rollouts(trainer):
        _check_rollouts(trainer, ours)
        return
    if is_a(trainer, *_ASYNCHRONOUS) or any(hasattr(trainer, method) for method in _GENERATE):
        raise ConfigError(
            f"{kind_of(trainer)} trains on completions that it makes while it runs, in a way of its own: rows of "
            "train_dataset would not say what the model learnt from. account() keeps the books of trainers that train "
            "on the rows of a dataset, of GRPOTrainer and of RLOOTrainer. For this one write the loop over "
            "lading.RolloutBooks (docs/recipes/rl.md, 40 lines)."
        )
    owner: Any = _owner(trainer, "_get_train_sampler", ours)
    kto = getattr(sys.modules.get("trl.trainer.kto_trainer"), "KTOTrainer", Trainer)
    if owner is Trainer or (owner is kto and isinstance(owner._get_train_sampler(trainer), RandomSampler | None)):
        return  # any order will do
    raise ConfigError(
        f"{kind_of(trainer)} has a _get_train_sampler of its own, and account() gives the plan's order: one would "
        "overrule the other. Leave the method out and ask for the order here (shuffle=False for that of the dataset, "
        "weights=..., mixture=Curriculum(...)), or write the loop yourself over lading.track(dataloader, run=...)."
    )


def makes_rollouts(trainer: Any) -> bool:
    """Say whether a trainer is GRPO, RLOO or made of one of them."""
    return is_a(trainer, *_MAKE_ROLLOUTS)


def _check_rollouts(trainer: Any, ours: type) -> None:
    """Refuse a trainer that generates, or takes its prompts, in a way of its own."""
    methods = ("_prepare_inputs", "_get_train_sampler", "get_train_dataloader")
    owners = {name: _owner(trainer, name, ours) for name in methods}
    theirs = [name.partition(":")[2] for name in _MAKE_ROLLOUTS]
    known = [getattr(sys.modules.get(name.partition(":")[0]), name.partition(":")[2], None) for name in _MAKE_ROLLOUTS]
    changed = [name for name, owner in owners.items() if owner is None or owner not in known]
    if changed:
        raise ConfigError(
            f"{kind_of(trainer)} has a {changed[0]} of its own: what it generates, or from which prompts, would go "
            f"behind the books of {' and '.join(theirs)}. Leave the method out, or write the loop over "
            "lading.RolloutBooks (docs/recipes/rl.md, 40 lines)."
        )


def kind_of(trainer: Any) -> str:
    """Return what the user calls the class of a trainer."""
    kind: type = getattr(trainer, "accounted", type(trainer))
    return kind.__name__


def _owner(trainer: Any, method: str, ours: type) -> type | None:
    """Return the class that a method of a trainer comes from, ours aside; None where it was put on the object."""
    if method in vars(trainer):
        return None
    kinds = (kind for kind in type(trainer).__mro__ if issubclass(kind, Trainer) or not issubclass(kind, ours))
    return next(kind for kind in kinds if method in vars(kind))


def _check_arguments(args: Any) -> None:
    """Refuse arguments that would reorder or resize batches behind the plan."""
    config = args.accelerator_config
    asked = {
        "auto_find_batch_size": args.auto_find_batch_size,
        "accelerator_config.split_batches": getattr(config, "split_batches", False),
        "accelerator_config.dispatch_batches": getattr(config, "dispatch_batches", None),
        "train_sampling_strategy": getattr(args, "train_sampling_strategy", "random") != "random",
        "ignore_data_skip": args.ignore_data_skip,
    }
    found = [name for name, value in asked.items() if value]
    if found:
        raise ConfigError(
            f"{', '.join(found)} changes which samples make up a batch, which is the plan's to say. "
            "Leave it at its default."
        )
