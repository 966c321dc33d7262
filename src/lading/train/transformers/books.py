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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Sampler

from lading.errors import LoaderError, ResumeError
from lading.identity import Bill
from lading.ledger.given import checked_number
from lading.ledger.ledger import Ledger
from lading.loader.torch.loader import Loader
from lading.order import Plan, Rebatch
from lading.source.counting import RowCounter, kept_rows
from lading.train.fates import Fates
from lading.train.transformers.numbered import Numbered

_TOGETHER = 32  # bills made at once: between two training steps the first costs as much as the next ten


class UpdateBooks(ABC):
    """The ledger of a trainer's run, and the batches of the update under way.

    Args:
        run: The ledger, or the folder in which each training opens one.
        names: Names of the datasets, where no plan has them.
        base: Checkpoints that the model's weights were loaded from.
    """

    data: Any

    def __init__(
        self, run: Ledger | str | os.PathLike[str], names: Sequence[str] = (), base: Sequence[str] = ()
    ) -> None:
        self._run, self._ledger = run, None if isinstance(run, str | os.PathLike) else run
        self._ended: Ledger | None = None
        self._names, self._base = names, base
        self._fetched: deque[Bill] = deque()
        self._losses: list[Any] = []
        self._launched: Mapping[str, Any] | None = None  # the attempt of the training before
        self._fates: Fates | None = None
        self._counter = RowCounter(None)
        self._has_remarked = False
        self.grad_norm: Any = None

    @property
    def ledger(self) -> Ledger:
        """The ledger of the training under way."""
        if self._ledger is None:
            self._ledger = Ledger(self._run, names=self._names, base=self._base)  # type: ignore[arg-type]
            self._ledger.follow(self._launched)
        return self._ledger

    @property
    def commits(self) -> Any:
        """What is told which batches an update used."""
        return self.ledger

    def counted_by(self, collator: Any) -> RowCounter:
        """Return what compares the batches of a collator with their samples."""
        self._counter = RowCounter(collator)
        return self._counter

    def begin(self, update: int, state: Mapping[str, Any] | None, *, is_new_model: bool = False) -> None:
        """Start at an update: at the beginning, or where a checkpoint was taken.

        Args:
            update: The trainer's next update.
            state: What the checkpoint holds of these books; None without one.
            is_new_model: Whether the model was made anew, so that what this process trained before is no part of it.
        """
        if update and state is None:
            raise ResumeError(
                f"the checkpoint is at update {update} but holds no state of Lading: it was saved before account() was "
                "called. Resume without account(), or start a new run."
            )
        self._fetched.clear()
        self._losses.clear()
        if is_new_model:
            self._launched = None
        self._has_remarked = False
        self._stand(update, state if update else None)

    @abstractmethod
    def _stand(self, update: int, state: Mapping[str, Any] | None) -> None:
        """Stand at an update; the state is None at the beginning."""

    def begin_epoch(self) -> None:  # noqa: B027 (a plan knows its epochs)
        """Note that the trainer begins an epoch."""

    @abstractmethod
    def note(self, rows: NDArray[np.int64], real: int | None = None, kept: NDArray[np.int64] | None = None) -> Bill:
        """Record that a batch arrived in the training process.

        Args:
            rows: The numbers of its samples.
            real: Rows of the global batch that count, where Accelerate filled it up; None: all.
            kept: Places of the samples that its collator kept; None: all.
        """

    def look(self, bill: Bill, batch: Any, rows: int) -> None:
        """Look at a batch that was noted: where its rows cannot be counted, that is recorded, once.

        Args:
            bill: Its bill.
            batch: What the model will get.
            rows: Samples it was made of.
        """
        if not self._has_remarked and (remark := self._counter.remark(batch, rows)):
            self._has_remarked = True
            self.ledger.note(bill.step, remark)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return where the run is: after the last update."""

    def close(self, error: BaseException | None = None) -> None:
        """End the training: close a ledger that was opened here, and let the next training open another.

        Args:
            error: The exception that ended it, if one did.
        """
        self._unwatch()
        if self._ledger is not None and self._ledger is not self._run:
            self._ledger.__exit__(None if error is None else type(error), error)
            self._ended, self._launched, self._ledger = self._ledger, self._ledger.launched, None
        elif self._ledger is not None:
            self._ledger.flush()

    def describe(self, checkpoint: str) -> None:
        """Say what a checkpoint that was saved learned from; also after the training."""
        ledger = self._ledger or self._ended
        if ledger is not None and os.path.exists(checkpoint) and (state := self.state())["run"]:
            ledger.checkpoint(checkpoint, state)

    def watch(self, model: Any, optimizer: Any) -> None:
        """See from now on which batches give gradients to a model, and when its optimizer makes a step."""
        self._unwatch()
        self._fates = Fates(self.commits, self._watched(model), () if optimizer is None else (optimizer,))

    def _watched(self, model: Any) -> Callable[[], Iterable[Any]]:
        """Return what is asked for the parameters in which gradients are seen to arrive."""
        parameters: Callable[[], Iterable[Any]] = model.parameters
        return parameters

    def _unwatch(self) -> None:
        if self._fates is not None:
            self._fates.close()
            self._fates = None

    def trained(self, loss: Any) -> None:
        """Note that the oldest batch went through the training step; its loss waits for the update."""
        assert self._fates is not None, "watch() comes before the first batch"
        if self._fates.trained(self._fetched.popleft()):
            self._losses.append(loss)

    def settle(self, update: int, *, was_skipped: bool) -> None:
        """Record whether an update used the batches since the last one."""
        assert self._fates is not None, "watch() comes before the first batch"
        loss = sum(checked_number("loss", loss) for loss in self._losses)  # a device is not waited for
        metrics: dict[str, Any] = {} if self.grad_norm is None else {"grad_norm": self.grad_norm}
        self._fates.settle(update, loss, was_skipped=was_skipped, **metrics)
        self._losses.clear()


class Books(UpdateBooks):
    """Ledger and position of a trainer's run that follows the plan of a loader, ``accumulation`` batches an update."""

    def __init__(
        self, loader: Loader, run: Ledger | str | os.PathLike[str], accumulation: int, base: Sequence[str] = ()
    ) -> None:
        super().__init__(run, base=base)
        self.loader, self.accumulation = loader, accumulation
        self.data = Numbered(tuple(loader.engine.request.sources.values()))
        self._steps, self._has_begun = range(0), False
        self._billed: dict[int, tuple[Plan, Bill]] = {}  # the bills that the sampler followed, of steps to come

    @property
    def updates_of_epoch(self) -> int:
        """Updates of an epoch, as Trainer counts them."""
        return -(-self.steps_of_epoch // self.accumulation)

    @property
    def steps_of_epoch(self) -> int:
        """Steps of an epoch: batches on each process."""
        return self.loader.plan.epoch_steps(0)

    @property
    def rows_of_epoch(self) -> int:
        """Rows that the trainer's DataLoader reads in an epoch, all processes together."""
        plan = self.loader.plan
        return plan.epoch_steps(0) * plan.global_batch_size if plan.drop_last else plan.epoch_samples

    def begin_epoch(self) -> None:
        """Note that the trainer begins an epoch; the plan's are whole."""
        inside = self.loader.plan.locate(self.loader.step).offset
        if inside and self._has_begun:
            raise LoaderError(
                f"the trainer begins an epoch {inside} samples into one of the plan: the one before was ended early "
                "(control.should_epoch_stop). Its samples would repeat or be missed. Let epochs run to their end, stop "
                "with control.should_training_stop, or plan shorter ones: mixture=Mixture(weights, epoch_samples=...)."
            )
        self._has_begun = True

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
        else:
            self.loader.engine.move_to(self.step_of(update))  # a trainer that trains again begins anew
        self.loader.tracker, self._has_begun = self.ledger, False
        self.ledger.follow(self._launched)  # not what the loader did before, where the model was made anew
        _, self._steps = self.loader.engine.begin()
        if masked := self.loader.plan.masked_at(self._steps.start):  # workers start later, with what is set here
            self.data.sources = tuple(r.source for r in self.loader.engine.fetcher.masked_readers(masked))

    def order(self, update: int) -> Iterator[int]:
        """Yield the rows of the epoch that an update belongs to, all processes together, in plan order."""
        plan, epoch = self.loader.plan, update // self.updates_of_epoch
        first = plan.epoch_start(epoch)
        steps = range(first, first + plan.epoch_steps(epoch))
        for place, step in enumerate(steps):
            found = self._billed.get(step)
            if found is None or found[0] is not self.loader.plan:  # weights may have changed
                plan = self.loader.plan
                self._billed |= {some: (plan, plan.bill(some)) for some in steps[place : place + _TOGETHER]}
            bill = self._billed[step][1]
            yield from self.data.row_of(bill.source_idx, bill.rows).tolist()

    def note(self, rows: NDArray[np.int64], real: int | None = None, kept: NDArray[np.int64] | None = None) -> Bill:
        """Record that a batch arrived in the training process."""
        if self.loader.step not in self._steps:
            _, self._steps = self.loader.engine.begin()
        step = self.loader.step
        bill = self._share_of(step)
        wanted = self.data.row_of(bill.source_idx, bill.rows)
        if rows.tobytes() != wanted.tobytes():  # as a rule they are equal, padding and all
            real = bill.num_samples  # the plan knows it, too
            if not np.array_equal(rows[:real], wanted[:real]):
                raise LoaderError(
                    f"step {step} was to hold the rows {_few(wanted[:real])} of its datasets, but {_few(rows)} "
                    "arrived. Something between the sampler and the training loop reorders or shards batches once "
                    "more: leave accelerator_config at its defaults and use no sampler of your own."
                )
            bill = bill if len(rows) == len(bill) else bill.select(np.arange(real))
        if kept is not None:
            bill = kept_rows(bill, kept[kept < len(bill)])
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
        update: Returns the trainer's global step; the epoch is derived from it, never from ``set_epoch``.
    """

    def __init__(self, books: Any, update: Any) -> None:
        self._books, self._update = books, update

    def __iter__(self) -> Iterator[int]:
        order: Iterator[int] = self._books.order(self._update())
        return order

    def __len__(self) -> int:
        return int(self._books.rows_of_epoch)


def _few(rows: Sequence[int] | NDArray[Any]) -> str:
    shown = ", ".join(map(str, list(rows)[:6]))
    return f"[{shown}{', ...' if len(rows) > 6 else ''}]"
