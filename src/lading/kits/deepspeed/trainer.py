"""Train with DeepSpeed, and know afterwards what every update was made of.

    train_dataset ─▶ Loader ─▶ RepeatingLoader ─▶ engine ─▶ ledger     applied, or skipped by an overflow
                       │             └▶ BatchTracker ─▶ batch_tracker_rank_00.jsonl
                       └─ state ─▶ checkpoint-600/lading.json

Started by ``deepspeed script.py``, ``torchrun script.py`` or ``python
script.py``. Killed at any moment and resumed from the last checkpoint, the
run resumes with exactly the batch that comes next.

Training repeats and drops a short tail; evaluation sees every sample once. However the processes were started,
there is a process group afterwards (``python script.py`` is one process, alone).
"""

from __future__ import annotations

import datetime
import functools
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator

from lading.errors import ConfigError
from lading.identity import World
from lading.identity.world import agree
from lading.kits.deepspeed import checkpoint as checkpoints
from lading.kits.deepspeed.arguments import DsTrainingArguments, updates_of
from lading.kits.deepspeed.callback import DsCallbackHandler, Update
from lading.kits.deepspeed.checkpoint import Checkpoint, restore_random, save_random, seed_random
from lading.kits.deepspeed.compiling import waiting_is_named
from lading.kits.deepspeed.config import deepspeed_config, given_config, learning_rate_factor, scheduled
from lading.kits.deepspeed.loaders import evaluation_loader, training_loader
from lading.kits.deepspeed.logging import TrainingLog, roll_back_logs
from lading.kits.deepspeed.update import Arguments, Updater, evaluate
from lading.ledger.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.runtime.files import sync_tree
from lading.train.loggers.logged import LoggedLedger, Sink, logged
from lading.train.repeating import RepeatingLoader


def make_engine(model: torch.nn.Module, args: DsTrainingArguments, rows: int, updates: int) -> Any:
    """Return the engine around a model.

    Args:
        model: The model; in reduced precision its weights are converted.
        rows: Samples of a step on one process.
        updates: Updates of the whole run, for the learning rate.
    """
    config = scheduled(deepspeed_config(args, rows), updates)
    factor = learning_rate_factor(args, updates)

    def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    with waiting_is_named():
        engine, *_ = deepspeed.initialize(
            model=model,
            model_parameters=[p for p in model.parameters() if p.requires_grad],
            config=config,
            lr_scheduler=None if "scheduler" in config else schedule,
            dist_init_required=False,
        )
    return engine


def join_processes(backend: str | None = None, timeout: float = 1800) -> World:
    """Join the process group, making it if need be, and return who we are in it."""
    if not torch.distributed.is_initialized() and "RANK" not in os.environ:
        # DeepSpeed looks these up itself, and would otherwise ask MPI.
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        os.environ.update({**alone, "MASTER_PORT": str(_free_port())})
    within = datetime.timedelta(seconds=timeout)
    with waiting_is_named():
        deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=within)
    return World.current()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


_DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class TrainOutput:
    """How training ended.

    Attributes:
        updates: Updates of the run so far, those before a resume included.
        skipped: Updates of this attempt that overflowed.
        loss: Mean loss of the last log line, over all processes; None before the first.
    """

    updates: int
    skipped: int
    loss: float | None
    seconds: float


class DsTrainer:
    """Train a model on real DeepSpeed, on data that can be accounted for.

    Args:
        model: Its ``forward`` takes the columns of a batch as keyword arguments (``idx`` and ``dataset_idx`` only if it
            accepts them) and returns a loss, or something with a ``loss``: one number, or one for each sample.
        args: Everything else; see ``DsTrainingArguments``.
        train_dataset: One dataset, or several by name.
        eval_dataset: What ``evaluate`` looks at; one dataset, or several by name.
        collate_fn: Makes a batch of a list of samples.
        callbacks: Objects with ``on_step``, ``on_evaluate`` or ``on_save``; see ``DsCallback``.
        policy: Chooses the mixture during the run; see ``lading.FollowLosses``.

    Attributes:
        ledger: The ledger, while training.
        log: What the run tells, while training.
        consumed_samples: Samples that updates were made of so far, all processes together, before a resume too.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        args: DsTrainingArguments,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        callbacks: Iterable[Any] | None = None,
        *,
        policy: Any = None,
    ) -> None:
        self.model, self.policy = model, policy
        self.train_dataset, self.eval_dataset, self.collate_fn = train_dataset, eval_dataset, collate_fn
        self.callbacks = DsCallbackHandler(callbacks)
        self.world = join_processes(args.backend, args.timeout)
        self.args = args.resolved(given_config(args), self.world.world_size)
        self.ledger: Ledger | LoggedLedger | None = None
        self.log: TrainingLog | None = None
        self._parent: Checkpoint | None = None
        self._lineage: tuple[dict[str, Any], ...] = ()
        self._last_loss: float | None = None
        self.consumed_samples = 0
        self.client_state: dict[str, Any] = {
            "global_epoch": 0,
            "train_batch_size": 0,
            "checkpoint_history": [],
            "log_history": [],
        }

    @functools.cached_property
    def loader(self) -> Loader:
        """The training loader; an incomplete global batch at the end of an epoch is dropped."""
        if self.train_dataset is None:
            raise ConfigError("there is nothing to train on: expected train_dataset=, a dataset or several by name.")
        return training_loader(self.args, self.train_dataset, self.collate_fn, self.policy)

    @functools.cached_property
    def eval_loader(self) -> Loader:
        """The evaluation loader: in order, every sample once."""
        if self.eval_dataset is None:
            raise ConfigError("there is nothing to evaluate on: expected eval_dataset=, a dataset or several by name.")
        return evaluation_loader(self.args, self.eval_dataset, self.collate_fn)

    @functools.cached_property
    def max_steps(self) -> int:
        """Updates of the whole run."""
        if self.args.max_steps > 0:
            return self.args.max_steps
        steps = math.floor(self.args.num_train_epochs * self.loader.plan.epoch_steps(0))
        return self.args.updates_in(steps, self.loader.plan.global_batch_size)

    @functools.cached_property
    def engine(self) -> Any:
        """DeepSpeed's engine around the model; made at first use."""
        rows = -(-self.loader.plan.global_batch_size // self.world.world_size)
        return make_engine(self.model, self.args, rows, self.max_steps)

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return torch.device(get_accelerator().device_name(int(os.environ.get("LOCAL_RANK", "0"))))

    def train(self, resume_from_checkpoint: bool | str | os.PathLike[str] | None = None) -> TrainOutput:
        """Train until ``max_steps`` updates are done.

        Args:
            resume_from_checkpoint: True: resume from the last checkpoint. ``"auto"``: the same, or from the start if
                there is none. A path: from that one.
        """
        began, args = time.perf_counter(), self.args
        if args.do_eval and args.eval_steps is not None:
            _ = self.eval_loader  # what is missing is said now, not after hours of training
        args.run_dir.mkdir(parents=True, exist_ok=True)
        self._begin(checkpoints.chosen_checkpoint(resume_from_checkpoint, args.run_dir))
        self.ledger = self.loader.tracker = self._open_ledger()
        args.logs.mkdir(parents=True, exist_ok=True)
        self.log = TrainingLog(args.run_dir, self.world, self.max_steps, args.progress, args.logs)
        self.loader.lockstep()
        batches = RepeatingLoader(self.loader, use_batch_tracker=args.batch_tracker)
        steps_of = self._steps_of if args.train_batch_size_init_rampup else None
        updater = Updater(self.engine, self.loader, batches, self._arguments(), self.ledger, self.policy, steps_of)
        first, skipped = self.engine.global_steps, self.engine.skipped_steps
        self.engine.train()
        try:
            with self.ledger, self.log.running(first, self.consumed_samples):  # failed where training did
                while (number := self.engine.global_steps) < self.max_steps:
                    size = self._steps_of(number) * self.loader.plan.global_batch_size
                    self.client_state["train_batch_size"] = size
                    update = updater.make()
                    self.log.update(update, batches.batch_tracker)
                    self._after(update, updater)
        finally:
            self.loader.tracker = None
        seconds = time.perf_counter() - began
        return TrainOutput(self.engine.global_steps, self.engine.skipped_steps - skipped, self._last_loss, seconds)

    def evaluate(self) -> dict[str, float]:
        """Return the mean loss over the evaluation data, every sample counted once; every process must call it."""
        model = self.engine.module if "engine" in self.__dict__ else self.model.to(self.device)
        began = time.perf_counter()
        metrics = evaluate(model, self.eval_loader, self._arguments(), self.device, self.args.eval_max_steps)
        metrics["eval/runtime"] = time.perf_counter() - began
        self._call("on_evaluate", metrics=metrics)
        return metrics

    def save_checkpoint(self) -> Path:
        """Write a checkpoint of where training stands; every process must call it."""
        engine, update = self.engine, self.engine.global_steps
        folder = checkpoints.checkpoint_folder(self.args.run_dir, update)
        if self.log is not None:
            self.log.flush()
        state = self.loader.state_dict()  # the ledger of this process is on disk now
        if self.world.rank == 0:
            checkpoints.reopen(folder)
        engine.save_checkpoint(str(self.args.run_dir), tag=folder.name)
        save_random(folder, self.world.rank)
        sync_tree(folder)  # before the mark that calls it complete
        torch.distributed.barrier()
        if self.world.rank == 0:
            self._checkpoint(update, state).write(folder)
            checkpoints.remove_oldest(self.args.run_dir, self.args.save_total_limit)
        torch.distributed.barrier()
        if self.ledger is not None:
            self.ledger.checkpoint(folder, state)
        self.client_state["global_epoch"] = state["epoch"]
        self.client_state["checkpoint_history"].append({"path": str(folder), "train/step": update})
        self._call("on_save", path=folder)
        return folder

    def _checkpoint(self, update: int, state: Mapping[str, Any]) -> Checkpoint:
        if not self._lineage:
            attempt = self.ledger.attempt if self.ledger is not None else None
            start = self._parent.update if self._parent is not None else 0
            before = self._parent.lineage if self._parent is not None else ()
            self._lineage = (*before, {"attempt": attempt, "update": start, "time": round(time.time(), 3)})
        return Checkpoint(
            update=update,
            epoch=state["epoch"],
            consumed_samples=self.consumed_samples,
            loader=dict(state),
            world_size=self.world.world_size,
            zero_stage=self.engine.zero_optimization_stage(),
            lineage=self._lineage,
            time=round(time.time(), 3),
        )

    def _begin(self, folder: Path | None) -> None:
        """Start fresh, or restore a checkpoint."""
        engine, self._lineage, self.consumed_samples = self.engine, (), 0
        self._parent = parent = None if folder is None else Checkpoint.read(folder)
        update = None if parent is None else parent.update
        agree(self.world, "the checkpoint", {"update": update}, way_out="Do all machines see the same output_dir?")
        if folder is None or parent is None:
            if engine.global_steps == 0 and not self.args.overwrite_output_dir:
                checkpoints.check_untouched(self.args.run_dir)
            seed_random(self.args.seed, self.world.rank)
        else:
            parent.check(folder, self.world.world_size, engine.zero_optimization_stage())
            engine.load_checkpoint(str(folder.parent), tag=folder.name)
            self.loader.load_state_dict(parent.loader)
            self.consumed_samples = parent.consumed_samples
            if not restore_random(folder, self.world.rank):
                seed_random(self.args.seed, self.world.rank)
        if self.world.rank == 0:
            start = engine.global_steps
            roll_back_logs(self.args.run_dir, start, self.args.logs)
            checkpoints.roll_back_checkpoints(self.args.run_dir, start)
        torch.distributed.barrier()

    def _steps_of(self, update: int) -> int:
        return self.args.accumulated_at(update, self.loader.plan.global_batch_size)

    def _open_ledger(self) -> Ledger | LoggedLedger:
        args = self.args
        ledger = Ledger(args.run_dir, self.loader.plan, record=args.record, allow_changed_plan=args.allow_changed_plan)
        sinks = _sinks(args) if self.world.rank == 0 else []
        every = updates_of(args.logging_steps, self.max_steps)
        return logged(ledger, *sinks, every=every or 1) if args.tensorboard or args.wandb or args.mlflow else ledger

    def _arguments(self) -> Arguments:
        return Arguments(self.model, self.device, _DTYPES[self.args.precision or "fp32"], self.args.pass_names)

    def _after(self, update: Update, updater: Updater) -> None:
        """Do what is due after an update."""
        assert self.log is not None
        args, done, total = self.args, update.number + 1, self.max_steps
        self.consumed_samples += update.num_samples
        self.client_state["global_epoch"] = update.bills[-1].epoch
        self._call("on_step", update=update)
        if _is_due(args.logging_steps, done, total):
            means = updater.losses.take()
            line = self.log.line(update, means, self.consumed_samples)
            self._last_loss = line["train/loss"]
            self.client_state["log_history"].append(line)
        if args.batch_tracker and _is_due(args.batch_tracker_save_steps or args.logging_steps, done, total):
            self.log.flush()
        self._validate(update)
        if args.save_steps is not None and _is_due(args.save_steps, done, total, args.save_final_checkpoint):
            self.save_checkpoint()

    def _validate(self, update: Update) -> None:
        """Evaluate where it is due: every so many updates, and where a chunk ends, which the loader is told."""
        assert self.log is not None
        args, done = self.args, update.number + 1
        ends = args.train_chunk_size is not None and self.loader.plan.locate(self.loader.step).chunk_step == 0
        due = args.eval_steps is not None and _is_due(args.eval_steps, done, self.max_steps, args.do_final_eval)
        metrics: dict[str, Any] = {}
        if args.do_eval and (due or (ends and self.eval_dataset is not None)):
            metrics = {"train/step": update.number, **self.evaluate()}
            self.log.note(metrics)
            self.client_state["log_history"].append(metrics)
        if ends:
            self.loader.validated(metrics.get("eval/loss"))

    def _call(self, name: str, **what: Any) -> None:
        engine = self.__dict__.get("engine", self.model)
        self.callbacks.call(name, engine, self.args, self.client_state, trainer=self, **what)


def _sinks(args: DsTrainingArguments) -> list[Sink]:
    """Return the loggers that the arguments ask for, opened at first use: each is an extra."""
    from lading.train import loggers

    sinks: list[Sink] = [loggers.TensorBoard(args.logs)] if args.tensorboard else []
    sinks += [loggers.WandB()] if args.wandb else []
    return [*sinks, loggers.MLflow()] if args.mlflow else sinks


def _is_due(interval: int | float, done: int, total: int, at_end: bool = True) -> bool:
    """Say whether something is due every so many updates, and at the end."""
    every = updates_of(interval, total)
    return (at_end and done == total) or (every is not None and done % every == 0)
