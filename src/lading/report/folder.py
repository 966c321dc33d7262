"""The runs of a folder, each at a glance: its state, how far it got, its last loss, its digest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lading.errors import ConfigError, LadingError
from lading.ledger.run_folder import RunFolder
from lading.report.evidence import Evidence
from lading.report.history import History, largest, time_of
from lading.report.snapshot import read_evidence
from lading.report.summary import describe_attempt, last_loss, run_state
from lading.runtime.paths import local_path

_DEEPEST = 4


def runs_in(folder: str | os.PathLike[str], deepest: int = _DEEPEST) -> list[Path]:
    """Return the folders of all runs below a folder, in order of their names; the folder may itself be one.

    Args:
        folder: Where to look. Links are not followed, and nothing inside a run is looked at.
        deepest: How many folders deep a run may lie.
    """
    root = local_path(folder)
    if not root.is_dir():
        raise ConfigError(f"{root} is no folder: expected a run, or a folder with runs in it. Check the path.")
    return sorted(_found(root, deepest))


def _found(folder: Path, deepest: int) -> Iterator[Path]:
    if RunFolder(folder).description.is_file():
        yield folder
        return
    if not deepest:
        return
    try:
        inside = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in inside:
        if not entry.name.startswith("."):
            yield from _found(Path(entry.path), deepest - 1)


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


def glance(evidence: Evidence) -> dict[str, Any]:
    """Return a run in a line: state, steps, loss, digest, attempts, when it began and last wrote."""
    attempts = [describe_attempt(evidence, a) for a in evidence.attempts.values() if not a.is_void]
    return {
        "state": run_state(evidence),
        **_end(evidence),
        "attempts": len(attempts),
        "datasets": len(evidence.description.named_datasets),
        "began": attempts[0]["began"] if attempts else None,
        "problem": None,
    }


def _end(evidence: Evidence) -> dict[str, Any]:
    kept = History(evidence).kept
    digest, wrote = int(kept["digest"].sum(dtype=np.uint64)), largest(kept["time"])
    return {
        "steps": len(kept["step"]),
        "loss": last_loss(kept),
        "digest": f"{digest:016x}" if len(kept["step"]) else None,
        "wrote": None if wrote is None else f"{time_of(wrote):%Y-%m-%d %H:%M:%S}",
    }


def glance_at(path: Path) -> dict[str, Any]:
    """Return a run in a line; one that cannot be read says why."""
    try:
        return glance(read_evidence(path))
    except LadingError as error:
        nothing = dict.fromkeys(("steps", "loss", "digest", "attempts", "datasets", "began", "wrote"))
        return {"state": "damaged", **nothing, "problem": " ".join(str(error).split())}
