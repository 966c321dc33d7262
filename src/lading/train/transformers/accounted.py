"""A Trainer whose data is accounted for: the mixin, and the line that adds it to a trainer that exists."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from lading.loader.torch.loader import Loader
from lading.train.transformers.books import Books, PlanOrder, UpdateBooks
from lading.train.transformers.evaluated import cut, filled, rows_that_count
from lading.train.transformers.numbered import ROWS, Numbered, NumberedCollator, NumberedStream
from lading.train.transformers.packed import DOCUMENT, PackedDocuments, documents_kept
from lading.train.transformers.stream import StreamBooks, check_stream


def account(trainer: Any, run: str | os.PathLike[str] | Ledger, *, sources: Any = None, **options: Any) -> Any:
    """Account for the training data of a Trainer.

    Args:
        trainer: A ``Trainer``, or one of TRL's; it is changed in place and returned.
        run: Folder of the run, or a ledger.
        sources: Datasets by name, for a mixture; None: the trainer's own ``train_dataset``.
        **options: Arguments of ``Loader``: ``weights``, ``mixture``, ``on_resume``, ``fingerprint``, ...
    """
    kind = type(trainer)
    if not issubclass(kind, LadingTrainerMixin):
        trainer.__class__ = type(f"Accounted{kind.__name__}", (LadingTrainerMixin, kind), {})
    trainer.keep_books(run, sources, options)
    return trainer


_Trainer: Any = object  # the mixin stands before a Trainer, whose names it uses


class LadingTrainerMixin(_Trainer):  # type: ignore[misc]
    """Put before ``Trainer`` in a class's bases, then call ``keep_books`` (``account`` does both).

    class AccountedTrainer(LadingTrainerMixin, Trainer): ...
    """

    _books: UpdateBooks | None = None
    train_dataset: Any
    data_collator: Any

    def keep_books(
        self, run: str | os.PathLike[str] | Ledger, sources: Any = None, options: Mapping[str, Any] | None = None
    ) -> None:
        """Follow a plan from the next ``train()`` on, and record it."""
        _check(self.args)
        data = self.train_dataset if sources is None else sources
        if DOCUMENT in (getattr(data, "column_names", None) or ()):
            data = PackedDocuments(data, self.args.output_dir)
        args = self.args
        world = World(args.process_index, args.world_size)
        if isinstance(data, IterableDataset):
            check_stream(options or {}, getattr(args.accelerator_config, "dispatch_batches", None), args.world_size)
            self._books = StreamBooks(data, run, args.train_batch_size, world)
        else:
            loader = Loader(
                data,
                batch_size=args.train_batch_size,
                seed=args.data_seed if args.data_seed is not None else args.seed,
                drop_last=args.dataloader_drop_last,
                world=world,
                names=False,
                **(options or {}),
            )
            self._books = Books(loader, run, args.gradient_accumulation_steps)
        self.train_dataset = self._books.data
        self.remove_callback(LadingCallback)
        self.add_callback(LadingCallback(self))

    @property
    def books(self) -> UpdateBooks:
        """Plan, ledger and position of the run."""
        if self._books is None:
            raise ConfigError("this trainer keeps no books yet. Call account(trainer, run) before train().")
        return self._books

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as ever; afterwards the books are closed, as interrupted if training was."""
        try:
            found = super().train(*args, **options)
        except BaseException:
            if self._books is not None:
                self._books.close(interrupted=True)
            raise
        self.books.close()
        return found

    def _prepare_dataset(self, *args: Any, **options: Any) -> Any:
        """TRL only: pack as it does, and keep whose tokens a row holds."""
        with documents_kept():
            return super()._prepare_dataset(*args, **options)

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        assert isinstance(self.books, Books), "a stream has no sampler"
        return PlanOrder(self.books, lambda: self.state.global_step)

    def _get_dataloader(self, dataset: Any, *args: Any, is_training: bool = False, **options: Any) -> Any:
        if not is_training or not isinstance(dataset, Numbered | NumberedStream):
            return super()._get_dataloader(dataset, *args, is_training=is_training, **options)
        users = self.data_collator
        try:
            # Outside the user's collator, and around the column removal that Trainer would put around it.
            self.data_collator = NumberedCollator(self._get_collator_with_removed_columns(users))
            return super()._get_dataloader(dataset, *args, is_training=True, **options)
        finally:
            self.data_collator = users

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        """Take the rows' numbers out of the batches before any ``forward`` sees them."""
        batches, items = super().get_batch_samples(*args, **options)
        gradients = self.accelerator.gradient_state
        for batch in batches:
            is_filled = batch is batches[-1] and gradients.end_of_dataloader and gradients.remainder > 0
            bill = self.books.note(batch.pop(ROWS).cpu().numpy(), gradients.remainder if is_filled else None)
            if isinstance(self.books, StreamBooks):
                self.books.look(bill, batch)
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
        """Train on a batch and remember its loss."""
        loss: torch.Tensor = super().training_step(*args, **options)
        self.books.lost(loss.detach())
        return loss

    def _get_grad_norm(self, *args: Any, **options: Any) -> Any:
        self.books.grad_norm = super()._get_grad_norm(*args, **options)
        return self.books.grad_norm

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        self.books.ledger.flush()  # on every rank, before anything of the checkpoint exists
        super()._save_checkpoint(*args, **options)

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
        self.trainer.books.begin(state.global_step, saved.get("attributes", {}).get("saved"))

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Begin a pass."""
        assert self.trainer is not None
        self.trainer.books.begin_epoch()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Commit an update."""
        assert self.trainer is not None
        skipped = bool(self.trainer.accelerator.optimizer_step_was_skipped)
        self.trainer.books.commit(state.global_step - 1, was_skipped=skipped)


def _check(args: Any) -> None:
    """Refuse what would reorder or resize batches behind the plan."""
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
