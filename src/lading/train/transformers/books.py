"""The books of a Trainer: a loader that is never iterated, whose plan the trainer follows.

    sampler   ◀── plan order of an epoch             what Trainer asks for
    fetched   ──▶ compared with the plan ──▶ bill     what really arrived
    update    ──▶ ledger.commit(bills)                what the optimizer used

Batches are planned as one loader of G = batch per device x processes would make
them: batch k of the epoch goes to process k mod R, which is the rank's share of
step k // R. Rows that Accelerate repeats to fill the last step are padding.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from lading.errors import LoaderError, ResumeError
from lading.identity import Bill
from lading.ledger.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.order import Plan, Rebatch
from lading.train.transformers.numbered import Numbered


class UpdateBooks(ABC):
    """The ledger of a trainer's run, and the batches of the update under way.

    Args:
        run: The ledger, or the folder in which each training opens one.
        names: Names of the datasets, where no plan has them.
    """

    data: Any

    def __init__(self, run: Ledger | str | os.PathLike[str], names: Sequence[str] = ()) -> None:
        self._run, self._ledger = run, None if isinstance(run, str | os.PathLike) else run
        self._names = names
        self._fetched: deque[Bill] = deque()
        self._losses: list[Any] = []
        self.grad_norm: Any = None

    @property
    def ledger(self) -> Ledger:
        """The ledger of the training under way."""
        if self._ledger is None:
            self._ledger = Ledger(self._run, names=self._names)  # type: ignore[arg-type]
        return self._ledger

    def begin(self, update: int, state: Mapping[str, Any] | None) -> None:
        """Start at an update: at the beginning, or where a checkpoint was taken."""
        if update and state is None:
            raise ResumeError(
                f"the checkpoint is at update {update} but holds no state of Lading: it was saved before account() was "
                "called. Resume without account(), or start a new run."
            )
        self._fetched.clear()
        self._losses.clear()
        self._stand(update, state if update else None)

    @abstractmethod
    def _stand(self, update: int, state: Mapping[str, Any] | None) -> None:
        """Stand at an update; the state is None at the beginning."""

    def begin_epoch(self) -> None:  # noqa: B027 (a plan knows its epochs)
        """Note that the trainer begins an epoch."""

    @abstractmethod
    def note(self, rows: NDArray[np.int64], real: int | None = None) -> Bill:
        """Record that a batch arrived in the training process.

        Args:
            rows: The numbers of its rows.
            real: Rows of the global batch that count, where Accelerate filled it up; None: all.
        """

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return where the run is: after the last update."""

    def close(self, *, interrupted: bool = False) -> None:
        """End the training: close a ledger that was opened here, and let the next training open another."""
        if self._ledger is not None and self._ledger is not self._run:
            self._ledger.close(interrupted=interrupted)
            self._ledger = None
        elif self._ledger is not None:
            self._ledger.flush()

    def lost(self, loss: Any) -> None:
        """Remember the loss of a batch until its update is committed."""
        self._losses.append(loss)

    def commit(self, update: int, *, was_skipped: bool) -> None:
        """Record that an update used the batches since the last one."""
        bills = [self._fetched.popleft() for _ in range(len(self._losses))]
        if was_skipped:
            self.ledger.skip(bills, "optimizer step skipped")
        else:
            loss = sum(float(loss) for loss in self._losses)
            metrics = {} if self.grad_norm is None else {"grad_norm": float(self.grad_norm)}
            self.ledger.commit(bills, update=update, loss=loss, **metrics)
        self._losses.clear()


class Books(UpdateBooks):
    """Ledger and position of a trainer's run that follows the plan of a loader, ``accumulation`` batches an update."""

    def __init__(self, loader: Loader, run: Ledger | str | os.PathLike[str], accumulation: int) -> None:
        super().__init__(run)
        self.loader, self.accumulation = loader, accumulation
        self.data = Numbered(tuple(loader.engine.request.sources.values()))
        self._steps = range(0)
        self._billed: dict[int, tuple[Plan, Bill]] = {}  # the bills that the sampler followed, of steps to come

    @property
    def updates_of_epoch(self) -> int:
        """Updates of an epoch, as Trainer counts them."""
        return -(-self.steps_of_epoch // self.accumulation)

    @property
    def steps_of_epoch(self) -> int:
        """Steps of an epoch: batches on each process."""
        return self.loader.plan.epoch_steps(0)

    def step_of(self, update: int) -> int:
        """Return the first step of an update."""
        epoch, inside = divmod(update, self.updates_of_epoch)
        return epoch * self.steps_of_epoch + inside * self.accumulation

    def _stand(self, update: int, state: Mapping[str, Any] | None) -> None:
        if state is not None:
            self.loader.load_state_dict(state)
            if any(isinstance(event, Rebatch) for event in self.loader.plan.events):
                raise ResumeError(
                    "Trainer finds its epoch, and what to leave out of it, by counting batches, so it cannot resume "
                    "with another global batch. Keep batch size per device x processes as it was, or start a new run."
                )
            if self.loader.step != self.step_of(update):
                raise ResumeError(
                    f"update {update} begins at step {self.step_of(update)} with gradient_accumulation_steps="
                    f"{self.accumulation}, the checkpoint was taken at step {self.loader.step}. Resume with the "
                    "accumulation and the batch size (per device x processes) of the run."
                )
        self.loader.tracker = self.ledger
        self._steps = self.loader.engine.begin()

    def order(self, update: int) -> Iterator[int]:
        """Yield the rows of the epoch that an update belongs to, all processes together, in plan order."""
        plan, epoch = self.loader.plan, update // self.updates_of_epoch
        first = plan.epoch_start(epoch)
        for step in range(first, first + plan.epoch_steps(epoch)):
            plan = self.loader.plan  # asked anew at each step: weights may have changed
            self._billed[step] = plan, (bill := plan.bill(step))
            yield from self.data.row_of(bill.source_idx, bill.rows).tolist()

    def note(self, rows: NDArray[np.int64], real: int | None = None) -> Bill:
        """Record that a batch arrived in the training process."""
        if self.loader.step not in self._steps:
            self._steps = self.loader.engine.begin()
        step = self.loader.step
        planned = self._share_of(step)
        real = int(np.count_nonzero(~planned.is_padding))  # the plan knows it, too
        wanted = self.data.row_of(planned.source_idx, planned.rows)
        if not np.array_equal(rows[:real], wanted[:real]):
            raise LoaderError(
                f"step {step} was to hold the rows {_few(wanted[:real])} of its datasets, but {_few(rows)} arrived. "
                "Something between the sampler and the training loop reorders or shards batches once more: leave "
                "accelerator_config at its defaults and use no sampler of your own."
            )
        bill = planned if len(rows) == len(planned) else planned.select(np.arange(real))
        self.loader.engine.note(bill, self._steps.stop)
        self._fetched.append(bill)
        return bill

    def _share_of(self, step: int) -> Bill:
        """Return what this rank answers for at a step: its part of the bill that the sampler followed."""
        engine, found = self.loader.engine, self._billed.get(step)
        self._billed = {later: bill for later, bill in self._billed.items() if later > step}
        if found is None or found[0] is not engine.plan:  # the plan has changed since
            return engine.share_of(step)
        return engine.plan.share(found[1], engine.world, pad=engine.request.pad)

    def state(self) -> dict[str, Any]:
        """Return where the run is: after the last update."""
        return self.loader.state_dict()


class PlanOrder(Sampler[int]):
    """The sampler Trainer is given: the plan's order of the epoch that the trainer is in.

    Args:
        books: The books.
        update: Returns the trainer's global step; the epoch is derived from it, never from ``set_epoch``.
    """

    def __init__(self, books: Books, update: Any) -> None:
        self._books, self._update = books, update

    def __iter__(self) -> Iterator[int]:
        return self._books.order(self._update())

    def __len__(self) -> int:
        plan = self._books.loader.plan
        if plan.drop_last:
            return plan.epoch_steps(0) * plan.global_batch_size
        return plan.epoch_samples


def _few(rows: Sequence[int] | NDArray[Any]) -> str:
    shown = ", ".join(map(str, list(rows)[:6]))
    return f"[{shown}{', ...' if len(rows) > 6 else ''}]"
