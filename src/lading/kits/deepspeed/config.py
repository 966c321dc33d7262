"""From training arguments to the configuration DeepSpeed reads.

    what the arguments say  ◀── on top: args.ds_config, where "auto" means "as the arguments say"

The sizes are the loader's: a configuration that contradicts them would make
DeepSpeed count samples that were not delivered, so it is refused.

The learning rate goes up during the warm-up, then down to nothing, or stays level:

linear    ╱╲        cosine   ╱⌒╲        constant   ╱▔▔
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

from lading.errors import ConfigError
from lading.kits.deepspeed.arguments import DsTrainingArguments
from lading.runtime.paths import local_path


def deepspeed_config(args: DsTrainingArguments, micro_batch_size: int) -> dict[str, Any]:
    """Return DeepSpeed's configuration.

    Args:
        micro_batch_size: Samples of a step on one process.
    """
    ours: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": micro_batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps or 1,
        "gradient_clipping": float(args.max_grad_norm),
        "zero_optimization": {"stage": args.zero_stage},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": args.learning_rate, "weight_decay": args.weight_decay},
        },
    }
    if args.precision not in (None, "fp32"):
        ours[str(args.precision)] = {"enabled": True}
    theirs = given_config(args)
    theirs.pop("train_batch_size", None)  # checked with the arguments; DeepSpeed works it out again
    _check(theirs, ours)
    return _on_any_device(_merged(ours, theirs))


def given_config(args: DsTrainingArguments) -> dict[str, Any]:
    """Return the configuration that the user gave, without "auto"."""
    return _without_auto(_read(args.ds_config))


def scheduled(config: dict[str, Any], updates: int) -> dict[str, Any]:
    """Return a configuration whose scheduler knows how long the run is, where it needs to and does not say."""
    scheduler = config.get("scheduler")
    if not isinstance(scheduler, Mapping) or scheduler.get("type") != "WarmupDecayLR":
        return config
    params = {"total_num_steps": updates, **scheduler.get("params", {})}
    return {**config, "scheduler": {**scheduler, "params": params}}


def _on_any_device(config: dict[str, Any]) -> dict[str, Any]:
    """Let torch's own Adam be taken: DeepSpeed's fused ones must be compiled for each device."""
    optimizer = config["optimizer"]
    if optimizer.get("type") not in ("Adam", "AdamW"):
        return config
    return {**config, "optimizer": {**optimizer, "params": {"torch_adam": True, **optimizer.get("params", {})}}}


def _read(given: Mapping[str, Any] | str | os.PathLike[str] | None) -> dict[str, Any]:
    if given is None or isinstance(given, Mapping):
        return dict(given or {})
    try:
        with open(local_path(given), encoding="utf-8") as file:
            values = json.load(file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"ds_config: {given} cannot be read: {error}. Pass a dict or a JSON file.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"ds_config: {given} holds a {type(values).__name__}: expected a JSON object.")
    return values


def _without_auto(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what other trainers fill in by themselves; so do we."""
    kept = {key: value for key, value in values.items() if value != "auto"}
    return {key: _without_auto(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def _check(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    names = {
        "train_micro_batch_size_per_gpu": "per_device_train_batch_size or global_batch_size",
        "gradient_accumulation_steps": "gradient_accumulation_steps",
    }
    for key, argument in names.items():
        if theirs.get(key, ours[key]) != ours[key]:
            raise ConfigError(
                f"ds_config: {key} is {theirs[key]}, the arguments say {ours[key]}: expected the same. Leave it out of "
                f"the DeepSpeed configuration and set {argument}."
            )
    stage = theirs.get("zero_optimization", {}).get("stage", 0)
    if stage not in (0, 1, 2):
        raise ConfigError(f"ds_config: zero_optimization.stage is {stage!r}: expected 0, 1 or 2.")


def _merged(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Put one nested mapping on top of another."""
    both = dict(base)
    for key, value in top.items():
        # Another optimizer has other parameters: its section is taken whole.
        nested = isinstance(value, Mapping) and isinstance(both.get(key), Mapping) and key != "optimizer"
        both[key] = _merged(both[key], value) if nested else value
    return both


def learning_rate_factor(args: DsTrainingArguments, total: int) -> Callable[[int], float]:
    """Return the factor of the learning rate as a function of the update.

    >>> factor = learning_rate_factor(DsTrainingArguments("runs/7", warmup_steps=2), total=10)
    >>> [factor(update) for update in (0, 1, 2, 6, 10)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warmup = math.ceil(args.warmup_steps * total) if isinstance(args.warmup_steps, float) else args.warmup_steps
    left = max(total - warmup, 1)

    def factor(update: int) -> float:
        if update < warmup:
            return (update + 1) / warmup
        done = min((update - warmup) / left, 1.0)
        if args.lr_scheduler_type == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1.0 - done if args.lr_scheduler_type == "linear" else 1.0

    return factor
