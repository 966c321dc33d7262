"""Where runs and parents of a checkpoint are: by their ids in folders that were given, then by the hints of waybills.

A hint is a path in a file that may come from anyone. It is looked at only when
a question needs it, and what lies there counts only if its id or SHA-256 is
the one that was asked for.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lading.errors import CorruptLedgerError, LadingError
from lading.ledger.description import KnownRun
from lading.ledger.log import Log
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.waybill import Moment, Waybill, is_waybill, waybill_at, waybill_path
from lading.report.runs_below import runs_in
from lading.runtime.fields import Origin
from lading.runtime.paths import local_path

_VARIABLE = "LADING_RUNS"
_DEEPEST = 6


class Places:
    """Look for runs by id, and for waybills by SHA-256.

    Args:
        runs: Folders with runs and checkpoints in them; empty: those of ``LADING_RUNS``.
        beside: The checkpoint that is asked about: a run that it lies in is looked at, too.
    """

    def __init__(self, runs: Sequence[str | os.PathLike[str]], beside: Path) -> None:
        given = list(runs) or [part for part in os.environ.get(_VARIABLE, "").split(os.pathsep) if part]
        self.roots, self._beside = [local_path(root) for root in given], beside.absolute()
        self._logs: dict[Path, Log] = {}

    def run(self, run: str, hint: str) -> tuple[Path | None, str]:
        """Return the folder of a run; where there is none, why."""
        beside = (Path(hint) if hint else None, *self._beside.parents[:2])
        found = self._runs.get(run) or next((path for path in beside if path is not None and run_id(path) == run), None)
        if found is not None:
            return found, ""
        another = hint and run_id(Path(hint)) is not None
        why = f"{hint} is another run" if another else f"it is not at {hint}" if hint else "nothing says where it lies"
        return None, f"run {run} was not found: {why}. Give the folder of its runs: runs=[...], --runs or {_VARIABLE}"

    @functools.cached_property
    def _runs(self) -> dict[str, Path]:
        found = ((run_id(path), path) for root in self.roots for path in runs_in(root))
        return {run: path for run, path in found if run is not None}

    def log(self, path: Path) -> Log:
        """Return the log of a run that was found."""
        if path not in self._logs:
            self._logs[path] = KnownRun(RunFolder(path)).log()
        return self._logs[path]

    def waybill(self, sha256: str, hint: str) -> tuple[Path | None, Waybill | None, str]:
        """Return the checkpoint whose waybill has a SHA-256, and that; where there is none, why."""
        at_hint, why = self._at_hint(hint)
        if at_hint is not None and at_hint.sha256 == sha256:
            return Path(hint), at_hint, ""
        path = self._waybills.get(sha256)
        if path is not None:
            return path, waybill_at(path), ""
        if at_hint is not None:
            why = f"the waybill at {hint} was changed, or is another checkpoint's: its SHA-256 is {at_hint.sha256[:16]}"
        return None, None, f"{why}, expected {sha256[:16]}"

    def recorded(self, sha256: str) -> Moment | None:
        """Return where training stood at a checkpoint that is gone: the log of its run knows the waybill."""
        return self._recorded.get(sha256)

    @functools.cached_property
    def _recorded(self) -> dict[str, Moment]:
        found = {}
        for run, path in self._runs.items():
            with contextlib.suppress(LadingError):
                for saved in self.log(path).checkpoints:
                    launch = self.log(path).launches.get(saved.attempt)
                    where = ("" if launch is None else launch.sha256, saved.attempt, saved.step, saved.update)
                    found[saved.waybill] = Moment(run, *where, pending=saved.pending)
        return found

    def _at_hint(self, hint: str) -> tuple[Waybill | None, str]:
        if not hint:
            return None, "nothing says where the parent lies"
        try:
            path = waybill_path(Path(hint))
            return (waybill_at(path), "") if path.exists() else (None, f"there is no waybill at {hint}")
        except (LadingError, OSError) as error:
            return None, f"the waybill at {hint} cannot be read ({error})"

    @functools.cached_property
    def _waybills(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for path in (path for root in self.roots for path in waybills_below(root)):
            with contextlib.suppress(CorruptLedgerError):  # not the one that is looked for, whatever it is
                found[waybill_at(path).sha256] = path
        return found


def run_id(folder: Path) -> str | None:
    """Return the id of the run that a folder holds; None where it holds none."""
    path = RunFolder(folder).description
    try:
        if not path.is_file():
            return None
        origin = Origin(path, CorruptLedgerError)
        return origin.record(origin.read()).hexadecimal("run", digits=32)
    except (CorruptLedgerError, OSError):
        return None


def waybills_below(root: Path) -> Iterator[Path]:
    """Yield the files of waybills below a folder."""
    depth = len(root.parts)
    for folder, folders, files in os.walk(root):
        if "run.json" in files:
            folders[:] = [name for name in folders if name not in ("ledger", "log", "plans")]
        if len(Path(folder).parts) - depth >= _DEEPEST:
            folders.clear()
        yield from (Path(folder, name) for name in files if is_waybill(name))
