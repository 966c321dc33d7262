"""What the books of rollouts cost: an update of TRL's GRPO (a tiny random GPT-2) with ``account``, and bytes on disk.

update       blocks of 4 batches of 16 rollouts, an update a batch, on one thread; beside the trainer itself: the
             clock's time and the processor's of all threads, of runs in turns, each compared with the one beside it
bytes        10^5 rollouts of 200 tokens, 8 a prompt, one in twenty too late: everything in the run's folder
checkpoint   what is left of a block, in the file beside a checkpoint

About four minutes on a quiet machine: ``python -m benchmarks.run rollouts``. The processor's time alone can be believed
where others work, too; both are means over whole runs: the ledger's thread comes five times a second.
"""

from __future__ import annotations

import gc
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
BLOCKS, ROUNDS, MADE, GROUP = 26, 15, 100_000, 8
FIRST = 2  # blocks that are not counted


def cases() -> Iterable[dict[str, Any]]:
    """Measure them all."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        for tokens in (6, 48):
            ways = {name: lambda a=name == "ours", t=tokens: update(folder, a, t) for name in ("ours", "peer")}
            found: dict[str, list[Any]] = in_turns(ways, ROUNDS)
            for place, clock in enumerate(("", " of processor time")):
                ours, peer = ([run[place] for run in found[name]] for name in ("ours", "peer"))
                name = f"GRPO update with account, {tokens} tokens, more{clock}"
                yield more(name, ours, peer, "us an update", "the trainer itself")
        yield from bytes_cases(folder)
    finally:
        shutil.rmtree(folder)


class Clock(TrainerCallback):
    """Takes the time of whole blocks, the first ones not counted: the clock's, and the processor's of all threads."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Look at the clocks after each block."""
        if state.global_step % 4 == 0:
            self.times.append((time.perf_counter(), time.process_time()))


def update(folder: Path, accounts: bool, tokens: int) -> Any:
    """Return the microseconds of an update, by both clocks; generation is part of it."""
    options = {"save_strategy": "no", "max_completion_length": tokens, "generation_kwargs": {"min_new_tokens": tokens}}
    trainer, clock = make(folder / "trainer", SHAPE, updates=4 * BLOCKS, **options), Clock()
    trainer.add_callback(clock)
    if accounts:
        account(trainer, folder / f"run{next(NEW)}")
    gc.collect()  # what the run before left behind
    trainer.train()
    spent = np.subtract(clock.times[-1], clock.times[FIRST - 1])
    return (spent / (4 * (BLOCKS - FIRST)) * 1e6).tolist()


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
