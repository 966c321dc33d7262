"""Where users hook into a run: after an update, an evaluation, a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lading.identity import Bill

if TYPE_CHECKING:
    from lading.train.deepspeed.trainer import DsTrainer


@dataclass(frozen=True)
class Update:
    """One optimizer step and what went into it, on this process.

    Attributes:
        number: Number of the update in the run, from 0; skipped ones count.
        bills: Bills of the steps whose gradients it added up.
        loss: Mean loss over these steps; a tensor, so that nobody waits for the device.
        is_applied: False where the gradients overflowed and the weights stayed as they were.
        seconds: Time it took.
        learning_rate: Learning rate it used.
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
    """A callback that does nothing; override what you need. Each is called on every process."""

    def on_step(self, trainer: DsTrainer, update: Update) -> None:
        """Act after an update, applied or skipped."""

    def on_evaluate(self, trainer: DsTrainer, metrics: Mapping[str, float]) -> None:
        """Act after an evaluation."""

    def on_save(self, trainer: DsTrainer, path: Path) -> None:
        """Act after a checkpoint is complete."""
