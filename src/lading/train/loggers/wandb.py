"""Weights & Biases: numbers, the plan in the configuration, the run folder as an artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb


class WandB:
    """A sink that logs to a Weights & Biases run.

    Args:
        run: A run you began; None: the one that is active, or a new one.
        artifact: Whether the run folder becomes an artifact when the ledger is closed.
    """

    def __init__(self, run: Any = None, *, artifact: bool = True) -> None:
        self.run = run or wandb.run or wandb.init()
        self._artifact = artifact

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Record numbers; the step is a value of its own, so that it need not be W&B's."""
        self.run.log({**values, "lading/step": step})

    def facts(self, facts: Mapping[str, str]) -> None:
        """Record texts in the run's configuration."""
        self.run.config.update(dict(facts), allow_val_change=True)

    def close(self, run: Path) -> None:
        """Keep the run folder as an artifact. The W&B run is the caller's to finish."""
        if self._artifact and run.is_dir():
            artifact = wandb.Artifact(f"lading-{self.run.id}", type="lading-run")
            artifact.add_dir(str(run))
            self.run.log_artifact(artifact)
