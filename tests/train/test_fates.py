"""Whether a batch was used is seen at its gradients and at the optimizer's own step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lading import Ledger, Loader, open_run
from lading.train.fates import NO_GRADIENTS, NO_STEP, Fates


class Teaching:
    """A model, its optimizer and a run of six batches."""

    def __init__(self, run: Any, **options: Any) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.Linear(2, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, **options)
        self.loader = Loader(np.arange(24, dtype=np.float32)[:, None] / 24, 4)
        self.ledger = self.loader.tracker = Ledger(run)
        self.fates = Fates(self.ledger, self.model.parameters, [self.optimizer])

    def loss(self, batch: Any) -> torch.Tensor:
        """Return a loss."""
        return self.model(torch.as_tensor(batch)).square().mean()


def fates_of(run: Any) -> list[tuple[str, str | None]]:
    """Return fate and reason of each step."""
    opened = open_run(run)
    assert opened.verify().holds, opened.verify()
    return [(row["fate"], row["reason"]) for row in opened.batches.dicts()]


def test_a_batch_without_gradients_is_skipped_and_its_neighbours_are_used(tmp_path):
    """Two batches an update; of the second update one batch gives nothing."""
    made = Teaching(tmp_path)

    with made.ledger:
        for batch, bill in made.loader.with_bills():
            if bill.step != 3:
                made.loss(batch).backward()
            made.fates.trained(bill)
            if bill.step % 2:
                made.optimizer.step()
                made.optimizer.zero_grad()
                assert made.fates.settle(bill.step // 2, 1.0)

    used = ("applied", None)
    assert fates_of(tmp_path) == [used, used, used, ("skipped", NO_GRADIENTS), used, used]


def test_a_training_without_any_gradients_has_used_nothing(tmp_path):
    """Not even the first batch, which nothing can be compared with."""
    made = Teaching(tmp_path)

    with made.ledger:
        for _, bill in made.loader.with_bills():
            made.fates.trained(bill)
            made.optimizer.step()
            made.fates.settle(bill.step)

    assert {fate for fate, _ in fates_of(tmp_path)} == {"skipped"}


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_under_a_scaler_is_skipped(tmp_path, fused):
    """A scaler leaves the step out, or (fused) calls it and says that nothing is to change."""
    made = Teaching(tmp_path, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    with made.ledger:
        for batch, bill in made.loader.with_bills():
            before = [p.clone() for p in made.model.parameters()]
            loss = made.loss(batch) * (float("inf") if bill.step == 2 else 1)
            scaler.scale(loss).backward()
            made.fates.trained(bill)
            scaler.step(made.optimizer)
            scaler.update()
            made.optimizer.zero_grad()
            used = made.fates.settle(bill.step)
            assert used is not all(map(torch.equal, before, made.model.parameters()))

    assert fates_of(tmp_path)[1:4] == [("applied", None), ("skipped", NO_STEP), ("applied", None)]


def test_parameters_that_are_unfrozen_later_are_seen(tmp_path):
    """First the one layer, then only the other: no batch is called unused."""
    made = Teaching(tmp_path)
    first, second = made.model
    second.requires_grad_(False)
    made.fates.close()
    made.fates = Fates(made.ledger, made.model.parameters, [made.optimizer])

    with made.ledger:
        for batch, bill in made.loader.with_bills():
            if bill.step == 3:
                first.requires_grad_(False)
                second.requires_grad_(True)
            made.optimizer.zero_grad()
            made.loss(batch).backward()
            made.fates.trained(bill)
            made.optimizer.step()
            made.fates.settle(bill.step)

    assert {fate for fate, _ in fates_of(tmp_path)} == {"applied"}


def test_without_hooks_the_framework_is_believed_and_closing_takes_hooks_away(tmp_path):
    """An optimizer that is none of torch's; a watch that has ended sees nothing more."""
    made = Teaching(tmp_path)
    made.fates.close()
    believing = Fates(made.ledger, optimizers=[object()])

    with made.ledger:
        for batch, bill in made.loader.with_bills():
            made.loss(batch).backward()
            made.optimizer.step()
            believing.trained(bill)
            believing.settle(bill.step, was_skipped=bill.step == 1, reason="said so")

    assert not made.fates.has_stepped
    assert fates_of(tmp_path)[:2] == [("applied", None), ("skipped", "said so")]
