"""Where users hook into a run: after an update, an evaluation, a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partialmethod
from typing import Any

from lading.errors import ArgumentError
from lading.identity import Bill
from lading.kits.deepspeed.arguments import DsTrainingArguments


@dataclass(frozen=True)
class Update:
    """One optimizer step and what went into it, on this process.

    Attributes:
        number: Number of the update in the run, from 0; skipped ones count.
        bills: Bills of the steps whose gradients it added up.
        loss: Mean loss over these steps; a tensor, so that no call waits for the device.
        is_applied: False where the gradients overflowed and the weights stayed as they were.
        dataset_losses: Mean loss of each dataset over all processes, where the model gives a loss a sample.
    """

    number: int
    bills: tuple[Bill, ...]
    loss: Any
    is_applied: bool
    seconds: float
    learning_rate: float
    dataset_losses: Mapping[str, float] = field(default_factory=dict)

    @property
    def num_samples(self) -> int:
        """Samples of all processes together."""
        return sum(bill.global_size for bill in self.bills)


class DsCallback:
    """A callback that does nothing; override what you need. Each is called on every process.

    The signatures are phyagi's: DeepSpeed's engine, the training arguments and the state of the trainer (a dict with
    ``global_epoch``, ``train_batch_size``, ``checkpoint_history`` and ``log_history``). What else there is to know
    comes by keyword: ``trainer`` always, and what each method names. An object that has only some of them will do.
    """

    def on_step(self, engine: Any, args: DsTrainingArguments, state: dict[str, Any], **kwargs: Any) -> None:
        """Act after an update, applied or skipped; ``update`` is an ``Update``."""

    def on_evaluate(self, engine: Any, args: DsTrainingArguments, state: dict[str, Any], **kwargs: Any) -> None:
        """Act after an evaluation; ``metrics`` are its results."""

    def on_save(self, engine: Any, args: DsTrainingArguments, state: dict[str, Any], **kwargs: Any) -> None:
        """Act after a checkpoint is complete; ``path`` is its folder."""


class DsCallbackHandler:
    """Calls those callbacks (or classes of callbacks) that have a method of a name."""

    def __init__(self, callbacks: Iterable[Any] | None = None) -> None:
        self.all: list[Any] = []
        for callback in callbacks or ():
            self.add_callback(callback)

    def add_callback(self, callback: Any) -> None:
        """Add a callback, or one of a class; the same object is refused a second time."""
        made = callback() if isinstance(callback, type) else callback
        if any(made is one for one in self.all):
            raise ArgumentError(f"callback {made!r} was added before: it would be called twice. Add it once.")
        self.all.append(made)

    def call(self, name: str, engine: Any, args: DsTrainingArguments, state: dict[str, Any], **kwargs: Any) -> None:
        """Call the method of this name of every callback that has it."""
        for callback in self.all:
            method = getattr(callback, name, None)
            if method is not None:
                method(engine, args, state, **kwargs)

    on_step = partialmethod(call, "on_step")
    on_evaluate = partialmethod(call, "on_evaluate")
    on_save = partialmethod(call, "on_save")
