"""MLflow: numbers as metrics, the plan among the tags, the run folder as artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlflow import MlflowClient, active_run, start_run


class MLflow:
    """A sink that logs to a run of MLflow.

    Args:
        run_id: A run you began; None: the one that is active, or a new one.
        artifact: Whether the run folder is copied to its artifacts when the ledger is closed.
    """

    def __init__(self, run_id: str | None = None, *, artifact: bool = True) -> None:
        self.run_id: str = run_id or (active_run() or start_run()).info.run_id
        self._client, self._artifact = MlflowClient(), artifact

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self.run_id, name, value, step=step)

    def facts(self, facts: Mapping[str, str]) -> None:
        """Record texts as tags, which may change; parameters of MLflow may not."""
        for name, text in facts.items():
            self._client.set_tag(self.run_id, name, text)

    def close(self, run: Path) -> None:
        """Keep the run folder among the artifacts. The MLflow run is the caller's to end."""
        if self._artifact and run.is_dir():
            self._client.log_artifacts(self.run_id, str(run), "lading")
