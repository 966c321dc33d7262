"""The witness: what a model was really given, whatever the books say."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lading import Columns, Ledger, Loader, NumpyLoader
from lading.errors import ConfigError, SourceError
from lading.testing import compare_witness, trained_batches, witness
from lading.train import Fates

X = np.stack([np.arange(24), np.arange(24) % 5], axis=1).astype(np.float32)


class Rows:
    """Samples whose first feature is their own number."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": X[index]}


def rows_of(x: Any) -> Any:
    """Return the numbers that samples carry."""
    return x[:, 0]


class Teaching:
    """A model that is watched, and a loader with a ledger."""

    def __init__(self, home: Path, **options: Any) -> None:
        torch.manual_seed(0)
        self.home, self.model = home, torch.nn.Linear(2, 1)
        self.seen = witness(self.model, home / "witness", rows_of)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001)
        self.loader = Loader(self.seen.dataset(Rows()), 4, seed=1, **options)

    def update(self, x: Any) -> None:
        """Make an update of a batch."""
        self.optimizer.zero_grad()
        self.model(torch.as_tensor(x)).square().mean().backward()
        self.optimizer.step()

    def train(self, update: Any = None) -> None:
        """Train an epoch, every batch committed; ``update`` takes the place of what should be done."""
        with Ledger(self.home / "run") as ledger:
            self.loader.tracker = ledger
            for batch, bill in self.loader.with_bills():
                (update or self.update)(batch["x"])
                ledger.commit(bill)

    def differences(self) -> list[Any]:
        """Compare the two records."""
        self.seen.close()
        return compare_witness(self.home / "witness", self.home / "run")


@pytest.mark.parametrize("workers", [0, 2])
def test_books_that_are_right_differ_in_nothing(tmp_path, workers):
    """What was read in workers is known, too."""
    made = Teaching(tmp_path, num_workers=workers)

    made.train()

    assert made.differences() == []
    line, is_ended = trained_batches(tmp_path / "witness")
    assert is_ended and sorted(row for batch in line for row in batch.ids) == list(range(24))


def dropped(samples: list[Any]) -> Any:
    """Leave a sample out, as recipes for broken files do."""
    return {"x": torch.stack([torch.as_tensor(s["x"]) for s in samples[1:]])}


def doubled(samples: list[Any]) -> Any:
    """Use a sample twice."""
    return dropped([samples[0], *samples, samples[0]])


def swapped() -> Any:
    """Return a collate that puts a row of the batch before in place of its own."""
    kept: list[Any] = []

    def collate(samples: list[Any]) -> Any:
        changed = [kept[0] if kept else samples[0], *samples[1:]]
        kept[:] = samples[:1]
        return dropped([samples[0], *changed])

    return collate


@pytest.mark.parametrize("collate", [dropped, doubled, swapped()], ids=["drops", "doubles", "swaps"])
def test_a_collate_that_changes_the_batch_is_found(tmp_path, collate):
    """By the loader where rows are counted; by the witness in any case."""
    uncounted = functools.partial(collate)
    uncounted.rows = "any"
    made = Teaching(tmp_path, collate_fn=uncounted)

    made.train()
    found = made.differences()

    assert {one.kind for one in found} == {"books only", "model only"}
    assert all(one.step is not None for one in found if one.kind == "books only")


@pytest.mark.parametrize("collate", [dropped, doubled])
def test_a_collate_that_changes_the_number_of_rows_is_refused(tmp_path, collate):
    """Before the model gets the batch."""
    with pytest.raises(SourceError, match="made of 4 samples, and nothing in it has so many rows"):
        Teaching(tmp_path, collate_fn=collate).train()


def test_a_loop_that_passes_over_batches_is_found(tmp_path):
    """A sampler, or a loop, that uses every second batch and books them all."""
    made, turns = Teaching(tmp_path), itertools.cycle([True, False])

    made.train(lambda x: next(turns) and made.update(x))

    assert [(one.kind, one.step) for one in made.differences()] == [("books only", step) for step in (1, 3, 5)]


@pytest.mark.parametrize("kind", ["no backward", "no step"])
def test_a_step_that_does_not_train_is_found(tmp_path, kind):
    """The model was given the batch, and nothing came of it."""
    made = Teaching(tmp_path)

    def lazily(x: Any) -> None:
        loss = made.model(torch.as_tensor(x)).square().mean()
        if kind == "no step":
            loss.backward()

    made.train(lazily)

    assert [one.kind for one in made.differences()] == ["books only"] * 6


def test_a_row_that_nobody_read_is_found(tmp_path):
    """A model that is fed from somewhere else."""
    made = Teaching(tmp_path)

    made.train(lambda x: made.update(x + torch.tensor([100.0, 0.0])))

    assert made.differences()[-1].kind == "never read"


def test_skips_evaluation_accumulation_and_training_twice_differ_in_nothing(tmp_path):
    """Two batches an update, one of them without gradients, evaluation in between, the whole twice in one process."""
    made = Teaching(tmp_path)

    for _ in range(2):
        with Ledger(tmp_path / "run") as ledger:
            made.loader.tracker = ledger
            made.loader.engine.move_to(0)
            fates = Fates(ledger, made.model.parameters, [made.optimizer])
            for batch, bill in made.loader.with_bills():
                loss = made.model(torch.as_tensor(batch["x"])).square().mean()
                if bill.step != 3:
                    loss.backward()
                fates.trained(bill)
                if bill.step % 2:
                    made.optimizer.step()
                    made.optimizer.zero_grad()
                    fates.settle(bill.step // 2)
                with torch.no_grad():
                    made.model.eval()(torch.zeros(3, 2))
                made.model.train()
            fates.close()

    assert made.differences() == []
    line, _ = trained_batches(tmp_path / "witness")
    assert [batch.is_used for batch in line] == [True, True, True, False, True, True] * 2


def test_an_overflow_is_told_from_accumulation(tmp_path):
    """Gradients that were thrown away before the next batch taught nothing."""
    made, count = Teaching(tmp_path), itertools.count()

    def update(x: Any) -> None:
        made.model(torch.as_tensor(x)).square().mean().backward()
        if next(count) != 2:
            made.optimizer.step()
        made.optimizer.zero_grad()

    made.train(update)

    assert [(one.kind, one.step) for one in made.differences()] == [("books only", 2)]


_KILLED = """
import os, sys
import numpy as np
from lading.testing import witness

def step(weights, batch):
    if batch[0] == 8:
        os.kill(os.getpid(), 9)
    return weights + 1

step, weights = witness(step, sys.argv[1], ids=lambda weights, batch: batch), np.zeros(2)
for first in range(0, 24, 4):
    weights = step(weights, list(range(first, first + 4)))
"""


def test_kill_9_loses_nothing_before_the_update_under_way(tmp_path):
    """And a resumed process continues where its weights say it does."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], capture_output=True)
    killed, is_ended = trained_batches(tmp_path)

    step = witness(lambda weights, batch: weights + 1, tmp_path, ids=lambda weights, batch: batch)
    weights = step(np.ones(2), [90, 91])  # from the weights before the second batch
    step.close(weights)

    assert done.returncode == -9
    assert [(batch.ids, batch.is_used) for batch in killed] == [
        ((0, 1, 2, 3), True),
        ((4, 5, 6, 7), True),
        ((8, 9, 10, 11), False),
    ]
    assert not is_ended
    line, is_ended = trained_batches(tmp_path)
    assert is_ended and [batch.ids for batch in line if batch.is_used] == [(0, 1, 2, 3), (90, 91)]


def test_two_ranks_are_one_batch(tmp_path):
    """Each rank has a file; what they were given at the same time belongs together."""
    for rank in range(2):
        step = witness(lambda weights, x: weights + 1, tmp_path, ids=lambda weights, x: x, rank=rank)
        step.close(step(step(np.zeros(1), [rank, -1]), [10 + rank]))

    line, _ = trained_batches(tmp_path)

    assert [batch.ids for batch in line] == [(0, 1), (10, 11)]


def test_columns_that_are_taken_are_read_too(tmp_path):
    """A source with ``take`` is read a batch at a time."""
    step = witness(lambda weights, batch: weights + 1, tmp_path / "w", ids=lambda weights, batch: batch["x"][:, 0])
    loader, weights = NumpyLoader(step.dataset(Columns(x=X)), 4), np.zeros(1)

    with Ledger(tmp_path / "run") as ledger:
        loader.tracker = ledger
        for batch, bill in loader.with_bills():
            weights = step(weights, batch)
            ledger.commit(bill)
    step.close(weights)

    assert compare_witness(tmp_path / "w", tmp_path / "run") == []
    assert list((tmp_path / "w").glob("read-*"))


def test_what_cannot_be_watched_and_what_holds_nothing_is_refused(tmp_path):
    """With a sentence each."""
    with pytest.raises(ConfigError, match="asked to watch a int: expected a torch module"):
        witness(3, tmp_path, rows_of)
    with pytest.raises(ConfigError, match="holds no record of a witness"):
        trained_batches(tmp_path)
