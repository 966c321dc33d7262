"""Lightning's own loggers as a sink: whatever a ``Trainer`` logs to, TensorBoard, CSV, Weights & Biases and others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger


class LightningSink:
    """A sink that passes on to any logger of Lightning's; ``LedgerCallback(run, log_every=50)`` takes its trainer's."""

    def __init__(self, logger: Logger) -> None:
        self.logger = logger

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Record numbers at a step."""
        self.logger.log_metrics(dict(values), step)

    def facts(self, facts: Mapping[str, Any]) -> None:
        """Record texts as hyperparameters."""
        self.logger.log_hyperparams(dict(facts))

    def close(self, run: Path) -> None:
        """Write down what was logged. The logger stays open: it is the trainer's."""
        self.logger.save()
