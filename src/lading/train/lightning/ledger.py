"""Feed a ledger from Lightning: delivered when the loader yields, applied when the optimizer stepped.

batch 0  1  2  3        accumulate_grad_batches=2
update   └──0──┘ └──1── ... each commit names the batches of its update
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger

from lading.errors import LedgerError
from lading.ledger.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.train.fates import Fates
from lading.train.lightning.plain import any_train_loader, flat, iterate_anew
from lading.train.loggers.logged import LoggedLedger, logged


class LedgerCallback(Callback):
    """Records what training consumes.

    Args:
        ledger: A ledger (``logged`` ones included), or the run directory to open one in when training starts.
        log_every: Notify the trainer's loggers every so many updates of what the run is fed; None: not at all.
        options: Arguments of ``Ledger`` when it is opened here (``record``, ``flush_every`` ...).
    """

    def __init__(
        self, ledger: Ledger | LoggedLedger | str | os.PathLike[str], *, log_every: int | None = None, **options: Any
    ) -> None:
        self._run_dir = ledger if isinstance(ledger, str | os.PathLike) else None
        self.ledger: Ledger | LoggedLedger | None = None if isinstance(ledger, str | os.PathLike) else ledger
        self._options, self._log_every = options, log_every
        self._fates: Fates | None = None
        self._loader: Loader | None = None
        self._updates = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the ledger, and let the loader notify it of every batch it yields."""
        loader = _loader(trainer)
        if self.ledger is None and self._run_dir is not None:
            self.ledger = Ledger(self._run_dir, loader.plan, **self._options)
        if self._log_every is not None and isinstance(self.ledger, Ledger):
            self.ledger = logged(self.ledger, *map(LightningSink, trainer.loggers), every=self._log_every)
        loader.tracker = [*_others(loader, self.ledger), self.ledger]
        self._loader = loader
        # Lightning began to iterate before the ledger was there; begin again, so that the attempt starts in it
        loader.load_state_dict(loader.state_dict())
        iterate_anew(trainer)
        self._updates = trainer.global_step
        self._fates = Fates(self.ledger, pl_module.parameters, trainer.optimizers)
        _describe_saves(trainer, self.ledger, loader)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Settle the batches of an update once the optimizer has had its turn, whether it made a step or not."""
        bill = _loader(trainer).last_bill
        if bill is None or self._fates is None:
            return
        self._fates.trained(bill)
        if trainer.global_step > self._updates or self._fates.has_stepped:
            self._fates.settle(trainer.global_step - 1, _loss(outputs))
            self._updates = trainer.global_step

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write down what was recorded before the run dies; one opened here ends as failed or interrupted."""
        self._end(exception)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Close the ledger if it was opened here."""
        if stage == "fit":
            self._end()

    def _end(self, error: BaseException | None = None) -> None:
        if self._fates is not None:
            self._fates.close()
            self._fates = None
        if self.ledger is not None and self._run_dir is None:
            self.ledger.flush()
        elif self.ledger is not None:
            self.ledger.__exit__(None if error is None else type(error), error)
            if self._loader is not None:  # Lightning iterates before the next fit opens a ledger
                self._loader.tracker = _others(self._loader, self.ledger)
            self.ledger = self._loader = None


def _others(loader: Loader, ledger: Any) -> list[Any]:
    """Return what is notified by a loader, but for a ledger."""
    kept = loader.tracker if isinstance(loader.tracker, list | tuple) else [loader.tracker]
    return [tracker for tracker in kept if tracker is not None and tracker is not ledger]


def _describe_saves(trainer: Trainer, ledger: Any, loader: Loader) -> None:
    """Let every checkpoint that a trainer saves have a waybill, whoever asks for it; also after the training."""
    save = functools.partial(type(trainer).save_checkpoint, trainer)

    def save_checkpoint(filepath: str | os.PathLike[str], *args: Any, **options: Any) -> None:
        save(filepath, *args, **options)  # type: ignore[arg-type]
        if os.path.exists(filepath) and (state := loader.state_dict())["run"]:  # all ranks have saved; no address
            ledger.checkpoint(filepath, state)

    trainer.save_checkpoint = save_checkpoint  # type: ignore[method-assign]


def _loader(trainer: Trainer) -> Loader:
    found = any_train_loader(trainer)
    if found is None:
        kinds = ", ".join(type(loader).__name__ for loader in flat(trainer.fit_loop._combined_loader)) or "none"
        raise LedgerError(
            f"the ledger needs one Lading loader to train on, found {kinds}. Give the trainer a lading.Loader or a "
            "ChunkedDataLoader, or pass accounted=True to the data module."
        )
    return found


def _loss(outputs: Any) -> Any:
    return outputs.get("loss") if isinstance(outputs, dict) else outputs


class LightningSink:
    """A sink that passes on to any logger of Lightning's (TensorBoard, CSV, Weights & Biases and others).

    ``LedgerCallback(run, log_every=50)`` takes its trainer's.
    """

    def __init__(self, logger: Logger) -> None:
        self.logger = logger

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Record numbers at a step."""
        self.logger.log_metrics(dict(values), step)

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Record texts as hyperparameters."""
        self.logger.log_hyperparams(dict(facts))

    def close(self, run: Path) -> None:
        """Write down what was logged. The logger stays open: it is the trainer's."""
        self.logger.save()
