"""Feed a ledger from Lightning: delivered when the loader yields, applied when the optimizer stepped.

batch 0  1  2  3        accumulate_grad_batches=2
update   └──0──┘ └──1── ... each commit names the batches of its update
"""

from __future__ import annotations

import os
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from lading.errors import LedgerError
from lading.identity import Bill
from lading.ledger.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.train.lightning.loops import any_train_loader, flat, iterate_anew
from lading.train.loggers.lightning import LightningSink
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
        self._bills: list[Bill] = []
        self._updates = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the ledger, and let the loader notify it of every batch it yields."""
        loader = _loader(trainer)
        if self.ledger is None and self._run_dir is not None:
            self.ledger = Ledger(self._run_dir, loader.plan, **self._options)
        if self._log_every is not None and isinstance(self.ledger, Ledger):
            self.ledger = logged(self.ledger, *map(LightningSink, trainer.loggers), every=self._log_every)
        kept = loader.tracker if isinstance(loader.tracker, list | tuple) else [loader.tracker]
        ended = [t for t in kept if isinstance(t, Ledger | LoggedLedger) and t.is_closed]  # of an earlier fit
        loader.tracker = [*(t for t in kept if t is not None and t not in (*ended, self.ledger)), self.ledger]
        # Lightning began to iterate before the ledger was there; begin again, so that the attempt starts in it
        loader.load_state_dict(loader.state_dict())
        iterate_anew(trainer)
        self._bills, self._updates = [], trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Commit the batches of an update once the optimizer has stepped."""
        bill = _loader(trainer).last_bill
        if bill is None or self.ledger is None:
            return
        self._bills.append(bill)
        if trainer.global_step > self._updates:
            self.ledger.commit(self._bills, update=trainer.global_step - 1, loss=_loss(outputs))
            self._bills, self._updates = [], trainer.global_step

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Write down what was recorded before the run dies; a ledger that was opened here ends as interrupted."""
        self._end(interrupted=True)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Close the ledger if it was opened here."""
        if stage == "fit":
            self._end(interrupted=False)

    def _end(self, *, interrupted: bool) -> None:
        if self.ledger is not None and self._run_dir is None:
            self.ledger.flush()
        elif self.ledger is not None:
            self.ledger.close(interrupted=interrupted)
            self.ledger = None


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
