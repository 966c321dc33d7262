"""One update: steps whose gradients add up, until DeepSpeed takes an optimizer step.

step      0   1   2   3 │ 4   5   6   7 │      gradient_accumulation_steps=4
update                0 │             1 │
ledger    ─ applied ──┘   ─ skipped ──┘        where the gradients of 4..7 overflowed
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from lading.errors import ConfigError
from lading.identity import Bill
from lading.ledger.ledger import Ledger
from lading.loader.loader import Loader
from lading.train.deepspeed_callback import Update
from lading.train.deepspeed_forward import Arguments, loss_of
from lading.train.deepspeed_losses import ALL, Losses


class Updater:
    """Makes updates out of batches.

    Args:
        engine: DeepSpeed's engine.
        loader: The loader whose bills are asked for.
        batches: Its batches, for ever.
        arguments: Turns batches into arguments of ``forward``.
        ledger: What is told the fate of every step.
        policy: What is told the losses of the datasets after every update, if it wants to know.
    """

    def __init__(
        self, engine: Any, loader: Loader, batches: Iterator[Any], arguments: Arguments, ledger: Ledger, policy: Any
    ) -> None:
        self._engine, self._loader, self._batches = engine, loader, batches
        self._arguments, self._ledger = arguments, ledger
        self._observe = getattr(policy, "observe", None)
        self.losses = Losses(loader.plan.names, engine.device)

    def make(self) -> Update:
        """Train on as many steps as an update takes, and record what became of them."""
        began, engine = time.perf_counter(), self._engine
        number, rate = engine.global_steps, engine.get_lr()[0]
        bills: list[Bill] = []
        total = torch.zeros((), dtype=torch.float64, device=engine.device)
        is_last = False
        while not is_last:
            bill, loss = self._step()
            bills.append(bill)
            total += loss
            # was_step_applied() is False between the boundaries, too: whether this was one must be asked before.
            is_last = engine.is_gradient_accumulation_boundary()
            engine.step()
        mean, applied = total / len(bills), bool(engine.was_step_applied())
        if applied:
            self._ledger.commit(bills, update=number, loss=mean)
        else:
            self._ledger.skip(bills, f"overflow: the gradients of update {number} were not finite")
        of_datasets = self._tell_policy()
        return Update(number, tuple(bills), mean, applied, time.perf_counter() - began, rate, of_datasets)

    def _step(self) -> tuple[Bill, torch.Tensor]:
        batch = next(self._batches)
        bill = self._loader.last_bill
        assert bill is not None
        args, kwargs = self._arguments(batch, bill)
        loss = loss_of(self._engine(*args, **kwargs), bill.num_samples or len(bill))
        self._check(loss)
        self.losses.add(loss, bill)
        # DeepSpeed takes the mean over processes; with the weight it becomes the mean over samples.
        weighted = loss.mean() * bill.loss_weight
        self._engine.backward(weighted)
        return bill, weighted.detach()

    def _check(self, loss: torch.Tensor) -> None:
        if self._observe is not None and loss.ndim == 0:
            raise ConfigError(
                "the policy follows the losses of the datasets, but forward returns one loss for the whole batch. "
                "Return one for each sample (reduction='none', then the mean over all but the first dimension)."
            )

    def _tell_policy(self) -> dict[str, float]:
        if self._observe is None:
            return {}
        means = {name: mean for name, mean in self.losses.recent().items() if name != ALL}
        self._observe(means)
        return means
