"""Open a run and ask it: what was in step k, where was this sample used, what did the model really get.

run = open_run("runs/7")
run.step(48_213).samples            what was in that batch
run.where("code", 93_412)           was this document ever seen, and when
run.verify().holds                  is the record what the plan says, byte for byte
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from lading.order.plan import Plan
from lading.report.evidence import Evidence, read_evidence
from lading.report.sightings import StepRecord, dataset_number, newest_plan, next_step, step_record, where
from lading.report.table import Table
from lading.report.verify import Progress, Verdict, silent, verify
from lading.report.views import Views


class Run:
    """A run as its ledger tells it, at the moment it was opened. Open it again to see what came since.

    Args:
        path: Folder of the run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.evidence: Evidence = read_evidence(self.path)
        self._views = Views(self.evidence)

    @property
    def plan(self) -> Plan | None:
        """The plan the run follows now, events included; None where nothing predicts the order."""
        return newest_plan(self.evidence)

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets, by number."""
        return self.evidence.description.datasets

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened to the run as a whole, and every bad sample."""
        bad = [{"event": "bad sample", **e} for e in self.evidence.exceptions() if e["reason"] != "blocked"]
        return [*self.evidence.events, *bad]

    @property
    def num_steps(self) -> int:
        """Steps from 0 to the last one recorded."""
        return next_step(self.evidence)

    @functools.cached_property
    def history(self) -> Table:
        """Each step once, in order: what became of it in the attempt that owns it."""
        return Table(self._views.query("FROM history ORDER BY step"))

    @functools.cached_property
    def batches(self) -> Table:
        """Every row that any rank recorded in any attempt."""
        return Table(self._views.query("SELECT * EXCLUDE owned FROM batches ORDER BY attempt, step, rank"))

    def step(self, step: int) -> StepRecord:
        """Return everything known of a step: its samples, fate, loss, exceptions, earlier attempts."""
        return step_record(self.evidence, self._views, step)

    def where(self, dataset: str | int, index: int, *, until: int | None = None) -> Table:
        """Return every place a sample was used at: step, epoch, slot, rank, attempt, fate.

        Args:
            dataset: Name or number.
            index: Index in the dataset.
            until: Also list where the plan will use it, up to this step.
        """
        return where(self.evidence, self._views, dataset, index, until)

    def number_of(self, dataset: str | int) -> int:
        """Return the number of a dataset given by name or number."""
        return dataset_number(self.evidence, dataset)

    def verify(self, progress: Progress = silent) -> Verdict:
        """Recompute the plan and compare it with the evidence."""
        return verify(self.evidence, progress)


def open_run(path: str | os.PathLike[str]) -> Run:
    """Open a run for questions; another process may be writing to it."""
    return Run(path)
