"""Training by updates, evaluation by samples, and the losses of both.

step      0   1   2   3 │ 4   5   6   7 │      gradient_accumulation_steps=4: gradients add up until an update
update                0 │             1 │
ledger    ─ applied ──┘   ─ skipped ──┘        where the gradients of 4..7 overflowed

evaluation, 10 samples, batches of 4, 2 processes    0 1 2 3 | 4 5 6 7
                                                     8 9 · · | · · · ·     · padding: no process hangs, none counts

forward   {"input_ids", "labels", "idx", "dataset_idx"}  ─▶  forward(input_ids=, labels=)            takes no names
                                                         ─▶  forward(input_ids=, labels=, idx=...)   takes them
loss      output, output["loss"], output.loss, output[0] ─▶  one number, or better one a sample: the losses of
          datasets, and the policies that follow them, need it

          code   prose   everything
sums       9.1     4.2        13.3      added at every step, on the device; over all processes on request
counts       6       2           8      not means of means: unequal shares and padding are right
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from lading.errors import ConfigError, SourceError
from lading.identity import Bill
from lading.identity.bill import ID, NAME_COLUMNS
from lading.kits.deepspeed.callback import Update
from lading.ledger.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.train.fates import Fates
from lading.train.loggers.logged import LoggedLedger
from lading.train.metrics.torch import add_over_ranks

NOT_DATA = frozenset({*NAME_COLUMNS, ID})


class Arguments:
    """Turns batches into positional and keyword arguments of a model's ``forward``.

    Args:
        model: The model; a compiled one is asked for what it was compiled from.
        dtype: Precision of floating columns, where the model is not in single precision.
        pass_names: Whether ``forward`` gets the name columns; None: if it accepts them.
    """

    def __init__(
        self, model: torch.nn.Module, device: torch.device, dtype: torch.dtype | None, pass_names: bool | None = None
    ) -> None:
        self._device, self._dtype = device, dtype
        self._left_out = _unwanted(model) if pass_names is None else frozenset() if pass_names else NOT_DATA

    def __call__(self, batch: Any, bill: Bill) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for the rows of a batch that count (or all of them, if none does)."""
        rows = None
        if 0 < bill.num_samples < len(bill):
            rows = torch.from_numpy(bill.is_real.nonzero()[0])
        if isinstance(batch, Mapping):
            kept = {key: value for key, value in batch.items() if key not in self._left_out}
            return (), {str(key): self._ready(value, rows, len(bill)) for key, value in kept.items()}
        columns = batch if isinstance(batch, tuple | list) else (batch,)
        return tuple(self._ready(column, rows, len(bill)) for column in columns), {}

    def _ready(self, value: Any, rows: torch.Tensor | None, length: int) -> Any:
        if isinstance(value, torch.Tensor):
            if rows is not None and value.ndim and len(value) == length:
                value = value[rows]
            dtype = self._dtype if value.is_floating_point() else None
            return value.to(self._device, dtype, non_blocking=True)
        if isinstance(value, Mapping):
            return {key: self._ready(inner, rows, length) for key, inner in value.items()}
        if isinstance(value, tuple | list):
            if rows is not None and len(value) == length and not isinstance(value[0], torch.Tensor):
                value = [value[row] for row in rows.tolist()]
            return type(value)(self._ready(inner, rows, length) for inner in value)
        return value


def loss_of(output: Any, rows: int) -> torch.Tensor:
    """Return the loss in what ``forward`` returned: one number, or one for each row.

    Args:
        output: A tensor, a tuple that begins with one, or anything with a ``loss``.
    """
    found = output
    if isinstance(output, Mapping):
        found = output.get("loss")
    elif hasattr(output, "loss"):
        found = output.loss
    elif isinstance(output, tuple | list) and output:
        found = output[0]
    if not isinstance(found, torch.Tensor):
        has = f"it has {', '.join(map(str, output))}" if isinstance(output, Mapping) else f"a {type(output).__name__}"
        raise SourceError(
            f"forward returned no loss; {has}. Return the loss, or a dict with 'loss': one number, or one for each "
            "sample."
        )
    if found.ndim and (found.ndim > 1 or len(found) not in (1, rows)):
        raise SourceError(
            f"forward returned a loss of shape {tuple(found.shape)} for {rows} samples: expected one number, or one "
            "for each sample. Take the mean over the other dimensions."
        )
    return found.squeeze() if found.numel() == 1 and rows != 1 else found


def _unwanted(model: torch.nn.Module) -> frozenset[str]:
    """Return the name columns that a model's ``forward`` does not accept."""
    parameters = inspect.signature(getattr(model, "_orig_mod", model).forward).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        return frozenset()
    return NOT_DATA - {p.name for p in parameters}


ALL = ""


class Losses:
    """Collects losses of samples."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self._names = (*names, ALL)
        self._here = torch.zeros(2, len(self._names), dtype=torch.float64, device=device)
        self._everywhere = torch.zeros_like(self._here)

    def add(self, loss: torch.Tensor, bill: Bill) -> None:
        """Add the loss of a batch: one number, or one for each row that counts."""
        count = bill.num_samples
        if count == 0:
            return
        values = loss.detach().to(torch.float64)
        self._here[0, -1] += values.sum() if values.ndim else values * count
        self._here[1, -1] += count
        if values.ndim:
            owners = torch.from_numpy(bill.dataset_idx[bill.is_real].astype("int64")).to(values.device)
            self._here[0].index_add_(0, owners, values)
            self._here[1].index_add_(0, owners, torch.ones_like(values))

    def recent(self) -> dict[str, float]:
        """Return the means since this was last asked, over all processes; every process must ask."""
        add_over_ranks(self._here)
        means = self._means(self._here)
        self._everywhere += self._here
        self._here.zero_()
        return means

    def take(self) -> dict[str, float]:
        """Return the means since they were last taken, over all processes; every process must ask."""
        self.recent()
        means = self._means(self._everywhere)
        self.num_samples = int(self._everywhere[1, -1])
        self._everywhere.zero_()
        return means

    def _means(self, table: torch.Tensor) -> dict[str, float]:
        sums, counts = table.tolist()
        return {name: s / n for name, s, n in zip(self._names, sums, counts, strict=True) if n}


class Updater:
    """Makes updates out of batches.

    Args:
        loader: The loader whose bills are asked for.
        batches: Its batches, for ever.
        ledger: What is notified of the fate of every step.
        policy: What is notified of the losses of the datasets after every update, if it wants to know.
        steps_of: The number of steps of an update, where that changes; None: DeepSpeed counts them.
    """

    def __init__(
        self,
        engine: Any,
        loader: Loader,
        batches: Iterator[Any],
        arguments: Arguments,
        ledger: Ledger | LoggedLedger,
        policy: Any,
        steps_of: Callable[[int], int] | None = None,
    ) -> None:
        self._engine, self._loader, self._batches = engine, loader, batches
        self._arguments, self._fates = arguments, Fates(ledger)  # the engine itself says whether it made a step
        self._observe, self._steps_of = getattr(policy, "observe", None), steps_of
        self.losses = Losses(loader.plan.names, engine.device)

    def make(self) -> Update:
        """Train on as many steps as an update takes, and record what became of them."""
        began, engine = time.perf_counter(), self._engine
        number, rate = engine.global_steps, engine.get_lr()[0]
        bills: list[Bill] = []
        total = torch.zeros((), dtype=torch.float64, device=engine.device)
        steps = None if self._steps_of is None else self._steps_of(number)
        if steps is not None:
            engine.set_train_batch_size(steps * engine.train_micro_batch_size_per_gpu() * engine.dp_world_size)
        is_last = False
        while not is_last:
            if steps is not None:  # DeepSpeed counts steps from the start of the run, as if all updates were alike
                engine.set_gradient_accumulation_boundary(len(bills) + 1 == steps)
            bill, loss = self._step()
            self._fates.trained(bill)
            bills.append(bill)
            total += loss
            # was_step_applied() is False between the boundaries, too: whether this was one must be asked before.
            is_last = engine.is_gradient_accumulation_boundary()
            engine.step()
        mean, overflow = total / len(bills), f"overflow: the gradients of update {number} were not finite"
        applied = self._fates.settle(number, mean, was_skipped=not engine.was_step_applied(), reason=overflow)
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


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, loader: Loader, arguments: Arguments, device: torch.device, most: int | None = None
) -> dict[str, float]:
    """Return the mean loss, those of the datasets where the model gives a loss a sample, and the number of samples.

    A loss of one number is taken for the mean over the batch.

    Args:
        model: The model; left in the mode it was in.
        loader: What to evaluate on; left where it stands, so that every evaluation is the same.
        most: Batches to look at; None: all.
    """
    losses = Losses(loader.plan.names, device)
    was_training = model.training
    model.eval()
    try:
        with loader.peeking():
            for batch, bill in islice(loader.with_bills(), most):
                if bill.num_samples:
                    args, kwargs = arguments(batch, bill)
                    losses.add(loss_of(model(*args, **kwargs), bill.num_samples), bill)
    finally:
        model.train(was_training)
    means = losses.take()
    of_datasets = {f"eval/loss/{name}": mean for name, mean in means.items() if name != ALL}
    return {"eval/loss": means[ALL], **of_datasets, "eval/samples": losses.num_samples}
