"""The runs of a folder, each at a glance: its state, how far it got, its last loss, its digest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lading.errors import ConfigError, LadingError
from lading.ledger.run_folder import RunFolder
from lading.ledger.schema import DELIVERED
from lading.report.evidence import Evidence
from lading.report.snapshot import read_evidence
from lading.report.summary import describe_attempt, run_state
from lading.report.views import Views

_DEEPEST = 4
_FEW_ROWS = 200_000
_DIGEST = "((sum(digest::HUGEINT) % 18446744073709551616)::UBIGINT)"


def runs_in(folder: str | os.PathLike[str], deepest: int = _DEEPEST) -> list[Path]:
    """Return the folders of all runs below a folder, in order of their names; the folder may itself be one.

    Args:
        folder: Where to look. Links are not followed, and nothing inside a run is looked at.
        deepest: How many folders deep a run may lie.
    """
    root = Path(folder)
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
        root = Path(target)
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
    rows = sum(file.rows for _, file in evidence.files("batches"))
    found = _end_of_few(evidence) if rows <= _FEW_ROWS else _end_of_many(evidence)
    return {
        "state": run_state(evidence),
        **found,
        "attempts": len(attempts),
        "datasets": len(evidence.description.named_datasets),
        "began": attempts[0]["began"] if attempts else None,
        "problem": None,
    }


def _end_of_many(evidence: Evidence) -> dict[str, Any]:
    table = Views(evidence).query(
        f"SELECT count(*) AS steps, arg_max(loss, (attempt, step)) AS loss, {_DIGEST} AS digest, max(time) AS wrote "
        "FROM history"
    )
    (row,) = table.to_pylist()
    return {**row, "digest": _hex(row["digest"]), "wrote": _time(row["wrote"])}


def _end_of_few(evidence: Evidence) -> dict[str, Any]:
    """Return the same without a database: of 200 runs that would take five seconds."""
    last = max((a.last_step for a in evidence.attempts.values() if a.last_step is not None), default=-1)
    table = evidence.rows(range(last + 1))
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in ("attempt", "step", "fate", "digest")}
    steps, digest, kept = 0, 0, np.zeros(0, dtype=np.int64)
    for span in evidence.spans:
        owned = (columns["attempt"] == span.attempt) & (columns["step"] >= span.start)
        owned &= columns["step"] < (span.stop if span.stop is not None else last + 1)
        mine = np.flatnonzero(owned)
        waits = [s for a, s in evidence.pending if a == span.attempt]
        undecided = (columns["fate"][mine] == DELIVERED) & ~np.isin(columns["step"][mine], waits)
        numbers, place, ranks = np.unique(columns["step"][mine], return_inverse=True, return_counts=True)
        whole = ranks == evidence.attempts[span.attempt].launch.world_size
        whole &= np.bincount(place, weights=undecided, minlength=len(numbers)) == 0
        chosen = mine[whole[place]]
        steps += int(np.count_nonzero(whole))
        digest += sum(columns["digest"][chosen].tolist())
        kept = chosen if len(chosen) else kept
    loss, wrote = None, None
    if len(kept):
        newest = table.take(pa.array(kept))
        lossy = newest.filter(newest["loss"].is_valid())
        if len(lossy):
            final = np.flatnonzero(lossy["step"].to_numpy() == lossy["step"].to_numpy().max())
            loss = float(np.mean(lossy["loss"].to_numpy()[final]))
        wrote = max(newest["time"].to_pylist())
    return {"steps": steps, "loss": loss, "digest": _hex(digest if steps else None), "wrote": _time(wrote)}


def _hex(digest: int | None) -> str | None:
    return None if digest is None else f"{digest % (1 << 64):016x}"


def _time(time: Any) -> str | None:
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def glance_at(path: Path) -> dict[str, Any]:
    """Return a run in a line; one that cannot be read says why."""
    try:
        return glance(read_evidence(path))
    except LadingError as error:
        nothing = dict.fromkeys(("steps", "loss", "digest", "attempts", "datasets", "began", "wrote"))
        return {"state": "damaged", **nothing, "problem": " ".join(str(error).split())}
