"""A trainer that makes its own data, accounted for: the mixin for TRL's GRPO, RLOO and what shares their methods."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset

from lading.errors import ConfigError
from lading.identity import World
from lading.loader.torch.loader import Loader
from lading.train.accelerate import moved
from lading.train.transformers.accepted import kind_of
from lading.train.transformers.accounted import LadingTrainerMixin
from lading.train.transformers.books import PlanOrder
from lading.train.transformers.rollouts import (
    NUMBERS,
    GenerationShape,
    PromptRows,
    RolloutUpdateBooks,
)


class RolloutTrainerMixin(LadingTrainerMixin):
    """Stands before a trainer that generates in ``_generate_and_score_completions`` and trains in ``compute_loss``."""

    _collate: Any

    def _make_books(
        self, data: Any, run: Any, options: Mapping[str, Any], world: World, base: Sequence[str]
    ) -> RolloutUpdateBooks:
        if isinstance(data, IterableDataset):
            raise ConfigError(
                f"train_dataset of {kind_of(self)} is a stream: nothing says which prompt is next, so no resume inside "
                "a block could be exact. Give it prompts with a length, or keep the books of your own loop over the "
                "stream: lading.RolloutBooks(run, group_size=...), which keeps the names."
            )
        shape, options = GenerationShape(self), dict(options)
        keeps_texts = options.pop("keep_texts", False)
        loader = Loader(
            data,
            batch_size=shape.prompts,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            drop_last=True,
            world=World(),
            names=False,
            **{"shuffle": bool(self.shuffle_dataset), **options},
        )
        return RolloutUpdateBooks(loader, run, shape, world, self._put_back, base, keep_texts=keeps_texts)

    def _put_back(self, step: int, buffer: list[dict[str, Any]] | None) -> None:
        """Let the trainer stand at a batch, with what is left of its block."""
        device = self.accelerator.device
        self._step, self._buffered_inputs = step, None
        if buffer is not None:
            self._buffered_inputs = [
                {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in part.items()}
                for part in buffer
            ]

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        return PlanOrder(self.books, lambda: self.state.global_step)

    def _numbered_collator(self, collate: Any, users: Any, kind: str) -> Any:
        self._collate = collate
        return PromptRows

    def get_batch_samples(self, *args: Any, **options: Any) -> Any:
        """Take the rows as ever: prompts are read where rollouts are made of them."""
        return super(LadingTrainerMixin, self).get_batch_samples(*args, **options)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if not self.model.training:  # evaluation is not counted
            evaluated: dict[str, Any] = super()._generate_and_score_completions(inputs)
            return evaluated
        prompts = moved(self.accelerator, self._collate(self.books.prompts(inputs.rows)))
        began = time.perf_counter()
        output: dict[str, Any] = super()._generate_and_score_completions(prompts)
        tokenizer: Any = getattr(self.processing_class, "tokenizer", self.processing_class)
        seconds = time.perf_counter() - began
        self.books.generated(output, tokenizer, self.state.global_step, seconds)
        return output

    def _calculate_rewards(self, inputs: Any, *args: Any, **options: Any) -> Any:
        """Remember the rewards of this process, weighted as the trainer weighs them; NaN where nobody gave one."""
        rewards = super()._calculate_rewards(inputs, *args, **options)
        first = self.accelerator.process_index * len(inputs)
        mine = rewards[first : first + len(inputs)].detach()
        total = (mine * self.reward_weights.to(mine.device)).nansum(dim=1)
        self.books.rewards = torch.where(torch.isnan(mine).all(dim=1), torch.nan, total)
        return rewards

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        """Note which rollouts go into the loss; the trainer never sees their numbers."""
        if NUMBERS not in inputs:
            return super().compute_loss(model, inputs, *args, **options)
        found = super().compute_loss(model, self.books.used(inputs), *args, **options)
        self.books.follow(found[0] if isinstance(found, tuple) else found)
        return found

    def _before_save(self, folder: Path) -> None:
        is_over = self._step % self.books.shape.block_steps == 0
        self.books.keep(folder, None if is_over else self._buffered_inputs, self._gathered)

    def _gathered(self, content: bytes) -> list[bytes]:
        """Return what all processes give, in order; as many bytes of each."""
        mine = torch.tensor([list(content)], dtype=torch.uint8, device=self.accelerator.device)
        return [bytes(row) for row in self.accelerator.gather(mine).tolist()]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        self.books.checkpoint = None if checkpoint is None else Path(checkpoint)
        super()._load_optimizer_and_scheduler(checkpoint)
