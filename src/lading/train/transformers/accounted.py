"""A Trainer whose data is accounted for: the mixin, and the callback that opens and commits its books."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState, TrainerControl, TrainerState
from transformers.trainer_pt_utils import find_batch_size
from transformers.training_args import TrainingArguments

from lading.errors import ConfigError
from lading.identity import World
from lading.ledger.ledger import Ledger
from lading.ledger.waybill.stamping import remove_stale
from lading.ledger.waybill.waybill import WAYBILL
from lading.loader.torch.loader import Loader
from lading.train.transformers.accepted import check_trainer, kind_of
from lading.train.transformers.books import Books, PlanOrder, UpdateBooks
from lading.train.transformers.evaluated import cut, filled, rows_that_count
from lading.train.transformers.numbered import KEPT, ROWS, Numbered, NumberedCollator, NumberedStream, RowNumbers
from lading.train.transformers.packed import DOCUMENT, PackedDocuments, documents_kept
from lading.train.transformers.stream import StreamBooks, check_stream

_log = logging.getLogger(__name__)


_Trainer: Any = object  # the mixin stands before a Trainer, whose names it uses


class LadingTrainerMixin(_Trainer):  # type: ignore[misc]
    """Put before ``Trainer`` in a class's bases, then call ``keep_books`` (``account`` does both).

    class AccountedTrainer(LadingTrainerMixin, Trainer): ...
    """

    _books: UpdateBooks | None = None
    _is_numbered = False
    train_dataset: Any
    data_collator: Any

    def keep_books(
        self, run: str | os.PathLike[str] | Ledger, sources: Any = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Follow a plan from the next ``train()`` on, and record it."""
        check_trainer(self, LadingTrainerMixin)
        data = self.train_dataset if sources is None else sources
        if DOCUMENT in (getattr(data, "column_names", None) or ()):
            data = PackedDocuments(data, self.args.output_dir)
        world, base = World(self.args.process_index, self.args.world_size), _base(getattr(self, "model", None))
        books = self._make_books(data, run, options or {}, world, base)
        books.counted_by(self.data_collator)
        self._books, self.train_dataset = books, books.data
        self.remove_callback(LadingCallback)
        self.add_callback(LadingCallback(self))

    def _make_books(
        self, data: Any, run: Any, options: Mapping[str, Any], world: World, base: Sequence[str]
    ) -> UpdateBooks:
        args = self.args
        if isinstance(data, IterableDataset):
            check_stream(options, getattr(args.accelerator_config, "dispatch_batches", None), args.world_size)
            return StreamBooks(data, run, args.train_batch_size, world, base)
        loader = Loader(
            data,
            batch_size=args.train_batch_size,
            seed=args.data_seed if args.data_seed is not None else args.seed,
            drop_last=args.dataloader_drop_last,
            world=world,
            names=False,
            **options,
        )
        return Books(loader, run, args.gradient_accumulation_steps, base)

    @property
    def books(self) -> Any:
        """Plan, ledger and position of the run."""
        if self._books is None:
            raise ConfigError("this trainer keeps no books yet. Call account(trainer, run) before train().")
        return self._books

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as ever; afterwards the books are closed, as failed or interrupted if training was."""
        try:
            found = super().train(*args, **options)
        except BaseException as error:
            if self._books is not None:
                self._books.close(error)
            raise
        self.books.close()
        return found

    def _prepare_dataset(self, *args: Any, **options: Any) -> Any:
        """TRL only: pack as it does, and keep whose tokens a row holds."""
        with documents_kept():
            return super()._prepare_dataset(*args, **options)

    def get_train_dataloader(self) -> Any:
        """Return Trainer's own DataLoader, which asks for the plan's order; refuse another."""
        self._is_numbered = False
        loader = super().get_train_dataloader()
        if not self._is_numbered:
            raise ConfigError(
                f"{kind_of(self)}.get_train_dataloader makes a DataLoader of its own, whose samples have no numbers: "
                "nothing could say what was trained on. Let it call super().get_train_dataloader(), give account() the "
                "datasets (sources=...), or write the loop yourself over lading.track(dataloader, run=...)."
            )
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        assert isinstance(self.books, Books), "a stream has no sampler"
        return PlanOrder(self.books, lambda: self.state.global_step)

    def _get_dataloader(self, dataset: Any, *args: Any, is_training: bool = False, **options: Any) -> Any:
        if not is_training or not isinstance(dataset, Numbered | NumberedStream | RowNumbers):
            return super()._get_dataloader(dataset, *args, is_training=is_training, **options)
        users, self._is_numbered = self.data_collator, True
        try:
            # Outside the user's collator, and around the column removal that Trainer would put around it.
            collate = self._get_collator_with_removed_columns(users)
            self.data_collator = self._numbered_collator(collate, users, dataset.kind)
            return super()._get_dataloader(dataset, *args, is_training=True, **options)
        finally:
            self.data_collator = users

    def _numbered_collator(self, collate: Any, users: Any, kind: str) -> Any:
        return NumberedCollator(collate, self.books.counted_by(users), kind)

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        """Take the rows' numbers out of the batches before any ``forward`` sees them."""
        batches, items = super().get_batch_samples(*args, **options)
        gradients = self.accelerator.gradient_state
        for batch in batches:
            is_filled = batch is batches[-1] and gradients.end_of_dataloader and gradients.remainder > 0
            rows, kept = batch.pop(ROWS).cpu().numpy(), batch.pop(KEPT, None)
            kept = None if kept is None else kept.cpu().numpy()
            bill = self.books.note(rows, gradients.remainder if is_filled else None, kept)
            self.books.look(bill, batch, len(rows))
        return batches, items

    def prediction_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """Evaluate the rows that count; rows that Accelerate repeats to fill the last batch do not."""
        rows = find_batch_size(inputs)  # type: ignore[no-untyped-call]
        count = rows and rows_that_count(self.accelerator.gradient_state, self.args.process_index, rows)
        if count == rows:
            return super().prediction_step(model, inputs, *args, **options)
        loss, logits, labels = super().prediction_step(model, cut(inputs, rows, count), *args, **options)
        return loss, filled(logits, rows, count), filled(labels, rows, count)

    def training_step(self, *args: Any, **options: Any) -> torch.Tensor:
        """Train on a batch, remember its loss, and see whether it gave gradients."""
        loss: torch.Tensor = super().training_step(*args, **options)
        self.books.trained(loss.detach())
        return loss

    def _get_grad_norm(self, *args: Any, **options: Any) -> Any:
        self.books.grad_norm = super()._get_grad_norm(*args, **options)
        return self.books.grad_norm

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        self.books.state()  # on every rank, before anything of the checkpoint exists: what was recorded is on disk
        folder = Path(self._get_output_dir(trial=options.get("trial")), f"checkpoint-{self.state.global_step}")
        if self.args.should_save:
            remove_stale(folder)
        self._before_save(folder)
        super()._save_checkpoint(*args, **options)
        self.accelerator.wait_for_everyone()  # other ranks write files of their own
        self.books.describe(str(folder))

    def _before_save(self, folder: Path) -> None:
        """Add to a checkpoint what only these books know."""

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as ever; one that is saved by hand after, or in, a training has a waybill, too."""
        super().save_model(output_dir, _internal_call)
        if not _internal_call and self._books is not None:
            self._books.describe(output_dir or self.args.output_dir)

    def _load_callback_state(self) -> None:
        super()._load_callback_state()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, LadingCallback):
                callback.trainer = self  # Trainer may have made it anew from its saved state


class LadingCallback(TrainerCallback, ExportableState):
    """Opens and commits the books; its state travels in ``trainer_state.json``."""

    def __init__(self, trainer: LadingTrainerMixin | None = None) -> None:
        self.trainer = trainer

    def state(self) -> dict[str, Any]:
        """Return where the run is, for the checkpoint."""
        kept = self.trainer is not None and self.trainer._books is not None
        return {"args": {}, "attributes": {"saved": self.trainer.books.state()} if kept else {}}  # type: ignore[union-attr]

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Open the books where the trainer starts."""
        assert self.trainer is not None
        kept: Any = state.stateful_callbacks or {}
        saved = kept.get(type(self).__name__) or {}
        saved = saved[-1] if isinstance(saved, list) else saved
        found, is_new = saved.get("attributes", {}).get("saved"), self.trainer.model_init is not None
        self.trainer.books.begin(state.global_step, found, is_new_model=is_new)
        self.trainer.books.watch(self.trainer.model, self.trainer.optimizer)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begin a pass."""
        assert self.trainer is not None
        self.trainer.books.begin_epoch()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Settle an update: committed if the optimizer made it."""
        assert self.trainer is not None
        skipped = bool(self.trainer.accelerator.optimizer_step_was_skipped)
        self.trainer.books.settle(state.global_step - 1, was_skipped=skipped)


def _base(model: Any) -> list[str]:
    """Return the folder that a model was loaded from, where that has a waybill."""
    where = str(getattr(model, "name_or_path", None) or "")
    if not where or not os.path.exists(os.path.join(where, WAYBILL)):
        return []
    _log.warning(
        "Lading: the weights were loaded from %s, which has a waybill: it is a parent of what is trained.", where
    )
    return [where]
