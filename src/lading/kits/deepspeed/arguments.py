"""What a DeepSpeed run is given: sizes, intervals, precision, where to write.

    DsTrainingArguments("runs/7", per_device_train_batch_size=32, max_steps=1000, batch_tracker=True)
    DsTrainingArguments.from_yaml("train.yaml")

Steps in these arguments are updates (optimizer steps), as users of trainers
expect; an interval given as a float is a share of all of them. The names are
phyagi's where it has one; sizes may be given here or in ``ds_config``. Nothing
here needs DeepSpeed.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lading.errors import ConfigError
from lading.runtime.fields import is_number, is_whole
from lading.runtime.paths import local_path
from lading.runtime.yaml_text import read_yaml

PRECISIONS = ("fp32", "bf16", "fp16")
SCHEDULES = ("linear", "cosine", "constant")


@dataclass(frozen=True)
class DsTrainingArguments:
    """Everything a ``DsTrainer`` is given beside model and data.

    Attributes:
        output_dir: Folder of the run, a ``Path`` from then on: ledger, records, logs and checkpoints.
        per_device_train_batch_size: Samples of a step on each process; None: what ``ds_config`` says
            (``train_micro_batch_size_per_gpu``), else 8.
        global_batch_size: Samples of a step, all processes together, instead: it stays the same on any number of them.
        per_device_eval_batch_size: Samples of an evaluation batch on each process; None: as in training.
        gradient_accumulation_steps: Steps whose gradients make one update; None: what follows from the
            ``train_batch_size`` of ``ds_config``, else 1.
        train_batch_size_init_rampup: Samples of the first updates, all processes together; 0: no ramp-up. The size of a
            step stays, an update takes more of them as the run goes; the plan and its order are the same without it.
        train_batch_size_per_rampup: Samples that an update gains every ``rampup_steps`` updates, up to the full size.
        rampup_steps: Updates of one size.
        max_steps: Updates of the whole run; -1: as ``num_train_epochs`` says.
        num_train_epochs: Rounds over the data, where ``max_steps`` is not given.
        learning_rate: Highest learning rate.
        weight_decay: Decoupled weight decay of AdamW.
        max_grad_norm: Gradients are clipped to this norm; 0: not at all.
        lr_scheduler_type: ``linear`` or ``cosine`` down to 0, or ``constant``; after the warm-up.
        warmup_steps: Updates, or share of all updates, in which the learning rate rises.
        zero_stage: 0, 1 or 2: how much of the optimizer's state each process keeps alone.
        precision: ``fp32``, ``bf16`` or ``fp16``; None: what ``ds_config`` enables, else ``fp32``.
        ds_config: DeepSpeed configuration (a dict, or the path of a JSON file) that is put on top; ``"auto"`` in it
            means what the arguments say.
        seed: Seeds order and random numbers.
        dataloader_shuffle: Whether the training data are shuffled.
        eval_dataloader_shuffle: Whether the evaluation data are; every sample counts once either way.
        weights: Shares of the datasets, by name.
        on_bad_sample: What to do about a sample that cannot be read: ``raise``, ``skip`` or ``substitute``.
        dataloader_num_workers: Worker processes of each loader.
        dataloader_prefetch_factor: Batches that each worker reads ahead; None: torch's default.
        dataloader_pin_memory: Whether batches are pinned; quietly not where there is no accelerator.
        logging_steps: Updates between two log lines.
        do_eval: Whether to evaluate while training at all.
        train_chunk_size: Steps between two evaluations, or how they change: see ``lading.Chunks``. At the end of each
            chunk that ends with an update the policies of chunks hear of the evaluation.
        curriculum: Easy samples first: the arguments of ``lading.Curriculum``; instead of ``weights``.
        sample_weights: How often each sample comes in a pass, as ``lading.Loader`` takes it.
        eval_steps: Updates between two evaluations; None: only when ``evaluate()`` is called.
        eval_max_steps: Batches of an evaluation at most; None: all.
        do_final_eval: Whether to evaluate after the last update, where ``eval_steps`` is given.
        save_steps: Updates between two checkpoints; None: no checkpoints.
        save_final_checkpoint: Whether the last update is saved, where ``save_steps`` is given.
        save_total_limit: Newest checkpoints to keep; None: all.
        batch_tracker: Whether each process records the samples of every update in ``batch_tracker_rank_NN.jsonl``.
        batch_tracker_save_steps: Updates between two writes of these records; None: ``logging_steps``.
        record: What the ledger keeps: None (digests), ``names`` or ``content``.
        pass_names: Whether ``forward`` gets ``idx`` and ``dataset_idx``; None: if it accepts them.
        overwrite_output_dir: Whether a run may begin anew in a folder that has checkpoints; they are rolled back then.
        allow_rebatch: Whether a checkpoint with another global batch size may be resumed.
        allow_changed_plan: Whether one with other data, weights or another seed may be.
        log_dir: Folder of ``log.jsonl``; None: ``output_dir``.
        tensorboard: Whether shares, passes and losses go to TensorBoard files in ``log_dir``.
        wandb: Whether they go to Weights & Biases; its key and host are taken from its own environment variables.
        wandb_api_key: Not offered: set ``WANDB_API_KEY``.
        wandb_host: Not offered: set ``WANDB_BASE_URL``.
        mlflow: Whether they go to MLflow, to the run that is active or a new one.
        load_checkpoint_num_tries: Not offered: 1.
        backend: Backend of the process group that is made; None: DeepSpeed's choice.
        timeout: Seconds that an operation of the process group may take.
        pipe_parallel_size: Not offered: 1.
        pipe_parallel_partition_method: Not offered: ``parameters``.
        pipe_parallel_activation_checkpoint_steps: Not offered: 0.
        tensor_parallel_size: Not offered: 1.
        context_parallel_size: Not offered: 1.
        progress: Whether to draw a progress bar; None: where there is a terminal, else a line at every log step. False:
            neither.
    """

    output_dir: str | os.PathLike[str]
    per_device_train_batch_size: int | None = None
    global_batch_size: int | None = None
    per_device_eval_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    train_batch_size_init_rampup: int = 0
    train_batch_size_per_rampup: int = 0
    rampup_steps: int = 0
    max_steps: int = -1
    num_train_epochs: float = 3.0
    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    lr_scheduler_type: str = "linear"
    warmup_steps: int | float = 0
    zero_stage: int = 0
    precision: str | None = None
    ds_config: dict[str, Any] | str | None = None
    seed: int = 42
    dataloader_shuffle: bool = True
    eval_dataloader_shuffle: bool = False
    weights: dict[str, float] | None = None
    train_chunk_size: Any = None
    curriculum: dict[str, Any] | None = None
    sample_weights: Any = None
    on_bad_sample: str | dict[str, str] = "raise"
    dataloader_num_workers: int = 0
    dataloader_prefetch_factor: int | None = None
    dataloader_pin_memory: bool = True
    logging_steps: int | float = 10
    do_eval: bool = True
    eval_steps: int | float | None = None
    eval_max_steps: int | None = None
    do_final_eval: bool = True
    save_steps: int | float | None = 500
    save_final_checkpoint: bool = True
    save_total_limit: int | None = None
    batch_tracker: bool = False
    batch_tracker_save_steps: int | float | None = None
    record: str | None = None
    pass_names: bool | None = None
    overwrite_output_dir: bool = False
    allow_rebatch: bool = False
    allow_changed_plan: bool = False
    log_dir: str | None = None
    tensorboard: bool = False
    wandb: bool = False
    wandb_api_key: str | None = None
    wandb_host: str | None = None
    mlflow: bool = False
    load_checkpoint_num_tries: int = 1
    backend: str | None = None
    timeout: int | float = 1800
    pipe_parallel_size: int = 1
    pipe_parallel_partition_method: str = "parameters"
    pipe_parallel_activation_checkpoint_steps: int = 0
    tensor_parallel_size: int = 1
    context_parallel_size: int = 1
    progress: bool | None = None

    def __post_init__(self) -> None:
        for names, (expected, is_right) in _CHECKS.items():
            for name in names.split():
                value = getattr(self, name)
                if not is_right(value):
                    raise ConfigError(f"{name} is {value!r}: expected {expected}.")
        object.__setattr__(self, "output_dir", Path(self.output_dir))
        if self.train_batch_size_init_rampup and not (self.train_batch_size_per_rampup and self.rampup_steps):
            raise ConfigError(
                f"train_batch_size_init_rampup is {self.train_batch_size_init_rampup}, but train_batch_size_per_rampup "
                f"is {self.train_batch_size_per_rampup} and rampup_steps is {self.rampup_steps}: expected both from 1 "
                "up, or no ramp-up at all (0)."
            )

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str], **changes: Any) -> DsTrainingArguments:
        """Read the arguments from a YAML file.

        Args:
            path: A mapping of argument names to values.
            **changes: Arguments that replace those of the file.
        """
        return cls.from_dict({**read_yaml(path), **changes}, source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "the arguments") -> DsTrainingArguments:
        """Make arguments of a mapping; unknown names are refused with the nearest known one."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                hint = f" Did you mean {near[0]}?" if near else f" Known are {', '.join(known)}."
                raise ConfigError(f"{source}: {name}: there is no such argument.{hint}")
        if "output_dir" not in values:
            raise ConfigError(f"{source}: output_dir: expected the folder of the run, found nothing.")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments as JSON-able values."""
        return {**dataclasses.asdict(self), "output_dir": str(self.output_dir)}

    @property
    def run_dir(self) -> Path:
        """The folder of the run."""
        return local_path(self.output_dir)

    @property
    def logs(self) -> Path:
        """The folder of ``log.jsonl``."""
        return self.run_dir if self.log_dir is None else local_path(self.log_dir)

    def resolved(self, ds_config: Mapping[str, Any], world_size: int) -> DsTrainingArguments:
        """Return the arguments with what only the DeepSpeed configuration says: sizes and precision.

        Args:
            ds_config: The configuration as it was read, without "auto".
        """
        micro = ds_config.get("train_micro_batch_size_per_gpu")
        rows = self.per_device_train_batch_size or micro or 8
        accumulation = self.gradient_accumulation_steps or ds_config.get("gradient_accumulation_steps")
        if accumulation is None and "train_batch_size" in ds_config:
            accumulation = ds_config["train_batch_size"] // max(1, self.global_batch_size or rows * world_size)
        accumulation = accumulation or 1
        whole = ds_config.get("train_batch_size", (self.global_batch_size or rows * world_size) * accumulation)
        if whole != (self.global_batch_size or rows * world_size) * accumulation:
            raise ConfigError(
                f"ds_config: train_batch_size is {whole}, but {rows} samples on each of {world_size} processes and "
                f"{accumulation} accumulated steps make {rows * world_size * accumulation}: expected the same. Change "
                "train_micro_batch_size_per_gpu or gradient_accumulation_steps, or leave train_batch_size out."
            )
        self._check_ramp_up(self.global_batch_size or rows * world_size, whole)
        enabled = [name for name in PRECISIONS if ds_config.get(name, {}).get("enabled") is True]
        return dataclasses.replace(
            self,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
            precision=self.precision or (enabled[0] if enabled else "fp32"),
        )

    def accumulated_at(self, update: int, step_size: int) -> int:
        """Return the steps of an update, which are fewer while the batch size ramps up.

        Args:
            step_size: Samples of a step, all processes together.

        >>> ramp = {"train_batch_size_init_rampup": 8, "train_batch_size_per_rampup": 16, "rampup_steps": 2}
        >>> args = DsTrainingArguments("runs/7", gradient_accumulation_steps=8, **ramp)
        >>> [args.accumulated_at(update, step_size=4) for update in range(6)]
        [2, 2, 6, 6, 8, 8]
        """
        whole = self.gradient_accumulation_steps or 1
        if not self.train_batch_size_init_rampup:
            return whole
        grown = self.train_batch_size_per_rampup * (update // self.rampup_steps)
        return min((self.train_batch_size_init_rampup + grown) // step_size, whole)

    def updates_in(self, steps: int, step_size: int) -> int:
        """Return the number of updates that so many steps make, at least 1."""
        if not self.train_batch_size_init_rampup:
            return max(steps // (self.gradient_accumulation_steps or 1), 1)
        updates = 0
        while (steps := steps - self.accumulated_at(updates, step_size)) >= 0:
            updates += 1
        return max(updates, 1)

    def _check_ramp_up(self, step_size: int, whole: int) -> None:
        """Refuse sizes of updates that are no whole number of steps, or above the full size."""
        first = self.train_batch_size_init_rampup
        if not first:
            return
        if first > whole:
            raise ConfigError(
                f"train_batch_size_init_rampup is {first}: expected at most the {whole} samples of a full update. "
                "Lower it, or raise train_batch_size in ds_config (or gradient_accumulation_steps)."
            )
        for name in ("train_batch_size_init_rampup", "train_batch_size_per_rampup"):
            size = getattr(self, name)
            if size % step_size:
                near = max(size // step_size, 1) * step_size
                raise ConfigError(
                    f"{name} is {size}, but a step has {step_size} samples: expected a multiple of it, such as {near}. "
                    "To change the size of the steps themselves, give a Loader a batch_schedule."
                )


def updates_of(interval: int | float | None, total: int) -> int | None:
    """Return an interval in updates; a float is a share of all updates.

    >>> updates_of(0.1, 250), updates_of(10, 250), updates_of(None, 250)
    (25, 10, None)
    """
    return max(1, math.ceil(interval * total)) if isinstance(interval, float) else interval


def _is_interval(value: Any) -> bool:
    return 0 < value < 1 if isinstance(value, float) else is_whole(value, 1)


def _or_none(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "output_dir": ("a folder", lambda v: isinstance(v, str | os.PathLike) and bool(str(v))),
    "per_device_train_batch_size gradient_accumulation_steps global_batch_size per_device_eval_batch_size "
    "save_total_limit dataloader_prefetch_factor eval_max_steps": (
        "an integer from 1 up, or nothing",
        _or_none(lambda v: is_whole(v, 1)),
    ),
    "max_steps": ("an integer from 1 up, or -1", lambda v: v == -1 or is_whole(v, 1)),
    "num_train_epochs": ("a number above 0", lambda v: is_number(v) and v > 0),
    "learning_rate weight_decay max_grad_norm": ("a number from 0 up", lambda v: is_number(v) and v >= 0),
    "lr_scheduler_type": (f"one of {', '.join(SCHEDULES)}", lambda v: v in SCHEDULES),
    "warmup_steps": (
        "an integer of updates, or a share from 0.0 to 1.0",
        lambda v: 0 <= v < 1 if isinstance(v, float) else is_whole(v, 0),
    ),
    "zero_stage": (
        "0, 1 or 2. Stage 3 partitions the weights themselves, which this trainer does not do",
        lambda v: is_whole(v, 0) and v <= 2,
    ),
    "precision": (f"one of {', '.join(PRECISIONS)}, or nothing", lambda v: v is None or v in PRECISIONS),
    "seed dataloader_num_workers train_batch_size_init_rampup train_batch_size_per_rampup rampup_steps": (
        "an integer from 0 up",
        lambda v: is_whole(v, 0),
    ),
    "ds_config": ("a dict or the path of a JSON file", _or_none(lambda v: isinstance(v, dict | str | os.PathLike))),
    "logging_steps": ("an integer of updates from 1 up, or a share between 0.0 and 1.0", _is_interval),
    "eval_steps save_steps batch_tracker_save_steps": (
        "an integer of updates from 1 up, a share between 0.0 and 1.0, or nothing",
        _or_none(_is_interval),
    ),
    "dataloader_shuffle eval_dataloader_shuffle dataloader_pin_memory do_eval do_final_eval save_final_checkpoint "
    "batch_tracker overwrite_output_dir allow_rebatch allow_changed_plan tensorboard wandb mlflow": (
        "true or false",
        lambda v: isinstance(v, bool),
    ),
    "log_dir backend": ("a text, or nothing", _or_none(lambda v: isinstance(v, str | os.PathLike) and bool(str(v)))),
    "timeout": ("a number of seconds above 0", lambda v: is_number(v) and v > 0),
    "wandb_api_key": (
        "nothing: these arguments are written to disk, and a key is not. Set the environment variable WANDB_API_KEY",
        lambda v: v is None,
    ),
    "wandb_host": ("nothing. Set the environment variable WANDB_BASE_URL", lambda v: v is None),
    "load_checkpoint_num_tries": (
        "1: a checkpoint that is not complete is never taken, so there is nothing to try again",
        lambda v: v == 1,
    ),
    "pipe_parallel_partition_method": (
        "'parameters': this trainer offers no pipeline parallelism",
        lambda v: v == "parameters",
    ),
    "pipe_parallel_activation_checkpoint_steps": (
        "0: this trainer offers no pipeline parallelism",
        lambda v: v == 0,
    ),
    "pipe_parallel_size": ("1: this trainer offers no pipeline parallelism", lambda v: v == 1),
    "tensor_parallel_size": ("1: this trainer offers no tensor parallelism", lambda v: v == 1),
    "context_parallel_size": ("1: this trainer offers no context parallelism", lambda v: v == 1),
    "pass_names progress": ("true, false or nothing", _or_none(lambda v: isinstance(v, bool))),
}
