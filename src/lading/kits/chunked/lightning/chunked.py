"""Chunked training under an ordinary Lightning ``Trainer``: one chunk = one epoch of the trainer.

    epoch 0   train chunk 0 ─▶ validate chunk 0
    epoch 1   train chunk 1 ─▶ validate chunk 1 ...     also after the short last chunk of a pass

The callback keeps Lightning's idea of an epoch's length equal to the chunk's,
sets aside limits that chunk sizes overrule, lets the sanity check use nothing
up, tells the progress bar and the loggers where the data stand, and keeps the
loaders' states in checkpoints: in the middle of a chunk and at its borders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar, TQDMProgressBar
from lightning.pytorch.utilities.rank_zero import rank_zero_warn  # type: ignore[attr-defined]

from lading.errors import ConfigError, ResumeError
from lading.kits.chunked.datamodule.sequence import SequenceDataset
from lading.kits.chunked.datamodule.sizes import ChunkSizes, chunk_sizes
from lading.kits.chunked.lightning import loops
from lading.kits.chunked.mixin import progress_line, seen_info
from lading.loader.torch.loader import Loader
from lading.runtime.fields import Fields, Origin
from lading.train.lightning.plain import any_train_loader, iterate_anew

_WAY_OUT = "Take an older checkpoint."


class ChunkedTraining(Callback):
    """Makes chunks and Lightning's epochs the same thing.

    The data modules of ``lading.train.lightning`` bring it along; with loaders of your own add it to the trainer:
    ``Trainer(callbacks=[ChunkedTraining()])``.

    Args:
        monitor: The metric that chunks which adapt (``lading.Chunks``) follow, by the name under which the model logs
            it. It is averaged over the ranks here.
    """

    def __init__(self, monitor: str = "val_loss") -> None:
        self.monitor = monitor
        self._losses: list[float] = [0.0, 0.0]  # sum and number of the training losses of the chunk under way
        self._trainer: Trainer | None = None
        self._saved: Mapping[str, Any] | None = None
        self._before_sanity: list[dict[str, Any]] = []

    # Limits -------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Set aside limits that chunk sizes overrule, with one warning that names them."""
        self._trainer = trainer
        sizes = _sizes(trainer)
        if sizes is not None and loops.limits_are_free(trainer):
            if sizes.warning:
                rank_zero_warn(sizes.warning)
            trainer.limit_train_batches, trainer.limit_val_batches = 1.0, 1.0
        module = getattr(trainer, "datamodule", None)
        if stage == "fit" and isinstance(module, SequenceDataset) and module.partition("val") is None:
            trainer.limit_val_batches = 0  # an empty loader would make Lightning warn of it

    # Epochs as long as chunks -------------------------------------------------------------------

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Resume where the checkpoint was taken, if there is one."""
        loader, state = any_train_loader(trainer), self._saved
        if loader is None or not loops.limits_are_free(trainer):
            return
        if state is not None:
            loader.load_state_dict(state["train"])
            self._load_validation(trainer)
            iterate_anew(trainer)
        if loader.chunk_batches is not None:
            _close_or_go_on(trainer, loader)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Tell Lightning how long the coming chunk is."""
        loader = loops.train_loader(trainer)
        if loader is not None and loops.limits_are_free(trainer):
            loops.follow_training(trainer, len(loader))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep up with the chunk under way, and show where it stands."""
        loader = loops.train_loader(trainer)
        if loader is None:
            return
        if loops.limits_are_free(trainer):
            self._load_validation(trainer)
            loops.follow_training(trainer, loops.batches_under_way(trainer) or len(loader))
            loops.follow_validation(trainer)
        if trainer.progress_bar_callback is not None:
            _show(trainer, progress_line(seen_info(loader)))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add up the training losses of a chunk, where a policy chooses chunks by them."""
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None and self._chooses(trainer):
            self._losses = [self._losses[0] + float(loss), self._losses[1] + 1]

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the chunk to the policies before a checkpoint is saved, so that it holds what they chose."""
        if not trainer.sanity_checking:
            self._report(trainer)

    def _report(self, trainer: Trainer) -> None:
        """Tell the loaders what was measured, where a chunk has just ended."""
        loader = loops.train_loader(trainer)
        if loader is None or trainer.state.fn != "fit" or not loops.limits_are_free(trainer) or not loader.step:
            return
        if loader.plan.locate(loader.step).chunk_step:
            return
        validation, chunks = loops.val_loaders(trainer), [loader.engine.request.chunks]
        metric = self._metric(trainer, needed=any(c is not None and c.resize is not None for c in chunks))
        total, count = self._losses
        loss = _averaged(trainer, total / count) if count else None
        on = validation[0].last_chunk() if len(validation) == 1 else None
        loader.validated(metric, loss=loss, on=on)
        for other in validation:
            if other.step and not other.plan.locate(other.step).chunk_step:
                other.validated(metric)
        self._losses = [0.0, 0.0]

    def _metric(self, trainer: Trainer, *, needed: bool) -> float | None:
        found = trainer.callback_metrics.get(self.monitor)
        if found is None and needed:
            logged = ", ".join(map(str, trainer.callback_metrics)) or "nothing"
            raise ConfigError(
                f"chunk sizes follow the metric {self.monitor!r}, and the model logged {logged}. Log it in "
                "validation_step, or name another: ChunkedTraining(monitor=...), train.monitor in a configuration."
            )
        return None if found is None else _averaged(trainer, float(found))

    def _chooses(self, trainer: Trainer) -> bool:
        loader = loops.train_loader(trainer)
        chunks = None if loader is None else loader.engine.request.chunks
        return chunks is not None and chunks.choose is not None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the chunk that was trained on, its pass, and the share of the data it reached."""
        loader = loops.train_loader(trainer)
        if not trainer.enable_validation:
            self._report(trainer)
        if loader is not None and loader.last_bill is not None:
            info = seen_info(loader)
            logged = {"chunk": info["current_chunk"], "pass": info["pass"], "share": info["share"]}
            # the same on all ranks; synchronised all the same, or Lightning warns
            pl_module.log_dict({f"data/{name}": float(value) for name, value in logged.items()}, sync_dist=True)

    # The sanity check uses nothing up -----------------------------------------------------------

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember where validation stands before the sanity check."""
        if trainer.sanity_checking:
            self._before_sanity = [loader.state_dict() for loader in loops.val_loaders(trainer)]

    def on_sanity_check_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put validation back to where it stood."""
        for loader, state in zip(loops.val_loaders(trainer), self._before_sanity, strict=True):
            loader.load_state_dict(state)
        self._before_sanity = []

    # Checkpoints --------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return where the loaders stand, for the checkpoint."""
        loader = None if self._trainer is None else any_train_loader(self._trainer)
        if self._trainer is None or loader is None:
            return {}
        state, bill = loader.state_dict(), loader.last_bill
        if bill is not None and loops.batch_in_flight(self._trainer):
            # saved while a batch is trained on (after an exception, say): it was yielded, but not used
            state.update(step=bill.step, epoch=bill.epoch, position=bill.position)
        kept: dict[str, Any] = {"train": state, "val": [v.state_dict() for v in loops.val_loaders(self._trainer)]}
        if self._losses[1] and self._chooses(self._trainer):
            total, count = self._losses
            kept["losses"] = [_averaged(self._trainer, total), count]
        return kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states of a checkpoint until the loaders are there."""
        if state_dict:
            fields = Fields(state_dict, Origin("the loaders' state in the checkpoint", ResumeError, _WAY_OUT))
            fields.record("train")  # what they hold is checked by the loaders
            fields.records("val")
        self._saved = dict(state_dict) or None
        self._losses = list((self._saved or {}).get("losses", [0.0, 0.0]))

    def _load_validation(self, trainer: Trainer) -> None:
        """Give the saved states to the loaders of validation, as soon as Lightning has them."""
        loaders = loops.val_loaders(trainer)
        if self._saved is None or (self._saved["val"] and not loaders):
            return
        for loader, state in zip(loaders, self._saved["val"], strict=False):
            loader.load_state_dict(state)
        self._saved = None


def _averaged(trainer: Trainer, value: float) -> float:
    """Return a number averaged over the ranks: policies must see the same everywhere."""
    if trainer.world_size == 1:
        return value
    found = trainer.strategy.reduce(torch.tensor(value, dtype=torch.float64), reduce_op="mean")
    return float(found)


def _close_or_go_on(trainer: Trainer, loader: Loader) -> None:
    """Give Lightning the length of the epoch it starts with, and the validation it owes."""
    done, at_start = loops.batches_done(trainer), loader.plan.locate(loader.step).chunk_step == 0
    # at the start of a chunk Lightning may have yet to close the epoch of the one before
    closing = loops.is_mid_epoch(trainer) and done and at_start
    loops.follow_training(trainer, done if closing else len(loader))
    loops.follow_validation(trainer)
    if loops.owes_validation(trainer):
        loops.validate_now(trainer)


def _sizes(trainer: Trainer) -> ChunkSizes | None:
    """Apply the sizes rule to the data module or the loaders of a trainer; None without chunks."""
    limits: dict[str, Any] = {
        "limit_train_batches": trainer.limit_train_batches,
        "limit_val_batches": trainer.limit_val_batches,
    }
    module = getattr(trainer, "datamodule", None)
    if module is not None and getattr(module, "use_chunked_training", False):
        return chunk_sizes(module.explicit_train_chunk_size, module.explicit_val_chunk_size, **limits)
    given = loops.given_loaders(trainer)
    return chunk_sizes(given[0].chunk_batches, **limits) if given else None


def _show(trainer: Trainer, line: str) -> None:
    """Put a line into the progress bar, whichever it is."""
    bar = trainer.progress_bar_callback
    text = f"Epoch {trainer.current_epoch}: {line}"
    if isinstance(bar, TQDMProgressBar) and bar._train_progress_bar is not None:
        bar.train_progress_bar.set_description(text, refresh=False)
    elif isinstance(bar, RichProgressBar) and bar.progress is not None and bar.train_progress_bar_id is not None:
        bar.progress.update(bar.train_progress_bar_id, description=text)
