"""What the books of rollouts cost: an update of TRL's GRPO (a tiny random GPT-2) with ``account``, and bytes on disk.

update       blocks of 4 batches of 16 rollouts, an update a batch, on one thread; beside the trainer itself
bytes        10^5 rollouts of 200 tokens, 8 a prompt, one in twenty too late: everything in the run's folder
checkpoint   what is left of a block, in the file beside a checkpoint
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.bench_books import NEW, in_turns, more
from benchmarks.measure import alone
from tests.train.transformers.scripts.rollout_trainer import make
from transformers import TrainerCallback

from lading import Plan, Rollout, RolloutBooks, RolloutGroup
from lading.train.transformers import account
from lading.train.transformers.rollouts import file_of

SHAPE = (16, 1, 4, 1, 8)  # batch, accumulation, batches a generation, iterations, generations
BLOCKS, ROUNDS, MADE, GROUP = 6, 9, 100_000, 8


def cases() -> Iterable[dict[str, Any]]:
    """Measure them all."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        for tokens in (6, 48):
            ways = {name: lambda a=name == "ours", t=tokens: update(folder, a, t) for name in ("ours", "peer")}
            found = in_turns(ways, ROUNDS)
            name = f"GRPO update with account, {tokens} tokens, more"
            yield more(name, found["ours"], found["peer"], "us an update", "the trainer itself")
        yield from bytes_cases(folder)
    finally:
        shutil.rmtree(folder)


class Clock(TrainerCallback):
    """Takes the time of whole blocks, the first not counted."""

    first = last = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Start after the first block, stop after each."""
        if state.global_step % 4 == 0:
            self.last = time.perf_counter()
            self.first = self.last if state.global_step == 4 else self.first


def update(folder: Path, accounts: bool, tokens: int) -> float:
    """Return the microseconds of an update; generation is part of it."""
    options = {"save_strategy": "no", "max_completion_length": tokens, "generation_kwargs": {"min_new_tokens": tokens}}
    trainer, clock = make(folder / "trainer", SHAPE, updates=4 * BLOCKS, **options), Clock()
    trainer.add_callback(clock)
    if accounts:
        account(trainer, folder / f"run{next(NEW)}")
    trainer.train()
    return (clock.last - clock.first) / (4 * (BLOCKS - 1)) * 1e6


def bytes_cases(folder: Path) -> Iterable[dict[str, Any]]:
    """Return what a rollout takes on disk, and what the rest of a block takes beside a checkpoint."""
    chance, run = np.random.default_rng(0), folder / "loop"
    with RolloutBooks(run, Plan.make({"math": 7000}, batch_size=64), group_size=GROUP) as books:
        for number in range(MADE // (GROUP * 8)):
            ids, seconds = chance.integers(0, 50_000, (8, GROUP, 200)), chance.exponential(size=(8, GROUP))
            made = []
            for row, took, prompt in zip(ids, seconds.tolist(), books.draw(8), strict=True):
                each = [Rollout(i, s, s - 1.0, s) for i, s in zip(row, took, strict=True)]
                made += books.made([RolloutGroup(prompt.group, each, number)])
            late = [rollout for rollout, s in zip(made, seconds.ravel(), strict=True) if s > 3]
            books.drop(late, "stale")
            books.used(sorted({*made} - {*late}), number, loss=1.0)
    size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    yield alone("rollouts on disk", round(size / (MADE // (GROUP * 8) * GROUP * 8), 1), "bytes a rollout")
    trainer = make(folder / "saved", SHAPE, updates=1)
    account(trainer, folder / "saved-run").train()
    yield alone(
        "an open block of 64 rollouts beside a checkpoint",
        file_of(folder / "saved" / "checkpoint-1", 0).stat().st_size,
        "bytes",
    )
