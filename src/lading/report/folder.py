"""The runs of a folder, each at a glance: its state, how far it got, its last loss, its digest."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from lading.errors import ConfigError, LadingError
from lading.ledger.tables import APPLIED
from lading.report.evidence import Evidence
from lading.report.history import Columns, History, largest, time_of
from lading.report.run import Run
from lading.report.runs_below import runs_in
from lading.report.snapshot import read_evidence
from lading.report.summary import began, last_loss, run_state
from lading.runtime.paths import local_path

_MOST_SETTINGS = 6


def named_runs(targets: Iterable[str | os.PathLike[str]]) -> dict[str, Path]:
    """Return the runs of some folders by a short name that is unique among them: the path below the folder.

    Args:
        targets: Runs, or folders with runs in them.
    """
    found: dict[str, Path] = {}
    for target in targets:
        root = local_path(target)
        runs = runs_in(root)
        if not runs:
            raise ConfigError(f"{root} holds no run: expected run.json in it or below. Check the path.")
        for run in runs:
            name = run.relative_to(root).as_posix() if run != root else (run.name or run.resolve().name)
            other = found.get(name)
            if other is not None and other.resolve() != run.resolve():
                name = run.resolve().as_posix().lstrip("/")
            found[name] = run
    return found


def glance(evidence: Evidence, points: int = 0) -> dict[str, Any]:
    """Return a run in a line: state, steps, loss, digest, attempts, when it began and last wrote.

    Args:
        points: Also return ``curve``, its loss in so many values.
    """
    attempts = [a for a in evidence.attempts.values() if not a.is_void]
    end = _end(evidence, points)  # looks at every file that counts
    damage = evidence.damage[0] if evidence.damage else None
    return {
        "state": run_state(evidence) if damage is None else "damaged",
        **end,
        "attempts": len(attempts),
        "datasets": len(evidence.description.named_datasets),
        "began": began(attempts[0].launch) if attempts else None,
        "config": dict(evidence.description.config),
        "problem": None if damage is None else f"{damage.file} {damage.problem}",
    }


def _end(evidence: Evidence, points: int) -> dict[str, Any]:
    kept = History(evidence).kept
    digest, wrote = int(kept["digest"].sum(dtype=np.uint64)), largest(kept["time"])
    return {
        "steps": len(kept["step"]),
        "loss": last_loss(kept),
        "digest": f"{digest:016x}" if len(kept["step"]) else None,
        "wrote": None if wrote is None else f"{time_of(wrote):%Y-%m-%d %H:%M:%S}",
        **({"curve": _curve(kept, points)} if points else {}),
    }


def _curve(kept: Columns, points: int) -> list[float | None]:
    """Return the mean losses of so many stretches of history."""
    loss = kept["loss"][kept["losses"] > 0]
    if len(loss) > points:
        bounds = np.linspace(0, len(loss), points + 1).astype(int)[:-1]
        loss = np.add.reduceat(loss, bounds) / np.diff(bounds, append=len(loss))
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in loss.tolist()]


def glance_at(path: Path, points: int = 0) -> dict[str, Any]:
    """Return a run in a line; one that cannot be read says why."""
    try:
        return glance(read_evidence(path), points)
    except LadingError as error:
        nothing = dict.fromkeys(("steps", "loss", "digest", "attempts", "datasets", "began", "wrote"))
        nothing |= {"config": {}} | ({"curve": []} if points else {})
        return {"state": "damaged", **nothing, "problem": " ".join(str(error).split())}


def differing_settings(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return the settings that differ between runs at a glance, in the order in which they were given."""
    configs = [row["config"] for row in rows]
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if len({repr(config.get(name)) for config in configs}) > 1][:_MOST_SETTINGS]


def use_in(path: Path, sample: tuple[str, int] | None, name: str | None = None) -> dict[str, Any]:
    """Return how often a run used a sample, or the documents of a name, and when; why that is not known.

    Args:
        sample: Dataset and index.
        name: What the documents are called, where it is not a sample that is asked for.
    """
    found: dict[str, Any] = dict.fromkeys(("times", "first_step", "first_time", "last_step", "problem"))
    try:
        run = Run(path)
        asked = [(run.number_of(sample[0]), sample[1])] if sample is not None else []
        for number, document in run.documents.find(name) if name is not None else ():
            asked += [(number, row["index"]) for row in run.documents.rows_of(number, document)]
        missing = "; ".join(run.documents.missing.values()) or None
        steps = sorted(row["step"] for one in set(asked) for row in run.where(*one) if row["fate"] == APPLIED)
        if name is not None and (not asked or (missing and not steps)):
            raise run.documents.not_known(name)
        found["times"], found["problem"] = len(steps), missing
        if steps:
            when = run.step(steps[0]).time
            found |= {"first_step": steps[0], "first_time": when, "last_step": steps[-1]}
    except LadingError as error:
        found["problem"] = " ".join(str(error).split())
    return found
