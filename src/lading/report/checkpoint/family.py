"""The family of a checkpoint: what it was made from, what that was made from, and the runs that taught each.

    merge ─┬─▶ tuned ── run B, steps 0..399 ──▶ pretrained ── run A, steps 0..9 999
           └─▶ other ── run C (not found: its part of every answer is unknown)

Parents are named by the SHA-256 of their waybill, attempts by that of their
launch record: what was put in their place is not taken for them. Each is
visited once, however many ways lead to it. Runs and parents are looked for in
folders that were given, then where waybills say. Such a hint is a path in a
file that may come from anyone: it is looked at only when a question needs it,
and what lies there counts only if its id or SHA-256 is the one that was asked for.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lading.errors import CorruptLedgerError, LadingError, LedgerError
from lading.ledger.description import KnownRun
from lading.ledger.events import pending_at
from lading.ledger.launch import Base, Parent, Range
from lading.ledger.lineage import lineage
from lading.ledger.log import Log
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.waybill import (
    IMPORT,
    TRAINING,
    Moment,
    Waybill,
    described_by,
    is_waybill,
    waybill_at,
    waybill_path,
)
from lading.report.evidence import known_launch
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

    def run(self, run: str, hint: str = "") -> Path:
        """Return the folder of a run; refuse another one."""
        beside = [*([Path(hint)] if hint else []), *self._beside.parents[:2]]
        found = self._runs.get(run) or next((path for path in beside if run_id(path) == run), None)
        if found is not None:
            return found
        another = hint and run_id(Path(hint)) is not None
        why = f"{hint} is another run" if another else f"it is not at {hint}" if hint else "nothing says where it lies"
        raise LedgerError(
            f"run {run} was not found: {why}. Give the folder of its runs: runs=[...], --runs or {_VARIABLE}"
        )

    def log(self, path: Path) -> Log:
        """Return the log of a run that was found."""
        if path not in self._logs:
            self._logs[path] = KnownRun(RunFolder(path)).log()
        return self._logs[path]

    def waybill(self, parent: Base) -> tuple[Path, Waybill]:
        """Return the checkpoint whose waybill has the SHA-256 of a parent, and that; refuse another one."""
        at_hint, why = None, "nothing says where it lies"
        try:
            at_hint = waybill_at(waybill_path(Path(parent.where))) if parent.where else None
        except (LadingError, OSError) as error:
            why = f"the waybill at {parent.where} cannot be read ({error})"
        if at_hint is not None and at_hint.sha256 == parent.waybill:
            return Path(parent.where), at_hint
        if parent.waybill in self._waybills:
            return self._waybills[parent.waybill]
        if at_hint is not None:
            why = f"the waybill at {parent.where} was changed, or is another checkpoint's: {at_hint.sha256[:16]}"
        raise LedgerError(f"a parent was not found: {why}, expected {parent.waybill[:16]}")

    @functools.cached_property
    def recorded(self) -> dict[str, Moment]:
        """Where training stood at checkpoints that may be gone, by waybill: the logs of their runs know them."""
        found = {}
        for run, path in self._runs.items():
            with contextlib.suppress(LadingError):
                for saved in self.log(path).checkpoints:
                    launch = self.log(path).launches.get(saved.attempt)
                    where = ("" if launch is None else launch.sha256, saved.attempt, saved.step, saved.update)
                    found[saved.waybill] = Moment(run, *where, pending=saved.pending)
        return found

    @functools.cached_property
    def _runs(self) -> dict[str, Path]:
        found = ((run_id(path), path) for root in self.roots for path in runs_in(root))
        return {run: path for run, path in found if run is not None}

    @functools.cached_property
    def _waybills(self) -> dict[str, tuple[Path, Waybill]]:
        return {found[1].sha256: found for root in self.roots for found in waybills_below(root)}


def run_id(folder: Path) -> str | None:
    """Return the id of the run that a folder holds; None where it holds none."""
    origin = Origin(RunFolder(folder).description, CorruptLedgerError)
    with contextlib.suppress(CorruptLedgerError):
        return origin.record(origin.read()).hexadecimal("run", digits=32)
    return None


def waybills_below(root: Path, deepest: int = _DEEPEST) -> Iterator[tuple[Path, Waybill]]:
    """Yield the checkpoints below a folder that have a waybill, and that; one that cannot be read is no answer."""
    for folder, folders, files in os.walk(root):
        inner = ("ledger", "log", "plans") if "run.json" in files else ()
        is_deepest = len(Path(folder).parts) - len(root.parts) >= deepest
        folders[:] = [] if is_deepest else sorted(set(folders).difference(inner))
        for path in (Path(folder, name) for name in sorted(files) if is_waybill(name)):
            with contextlib.suppress(CorruptLedgerError):
                yield described_by(path), waybill_at(path)


@dataclass(frozen=True)
class Relative:
    """A checkpoint of a family.

    Attributes:
        key: SHA-256 of its waybill; of a state without one, what stands for its moment.
        where: Where it was found, or a hint where it was.
        made: As the waybill says; "" where there is none.
        moment: Where training stood; None where no training made it, or nothing is known.
        parents: Keys of what it was made from.
        problem: Why nothing, or not all, is known of it; "" where all is.
        run: Folder of the run that taught it; None where it was not found.
    """

    key: str
    where: str
    made: str = TRAINING
    moment: Moment | None = None
    parents: tuple[str, ...] = ()
    problem: str = ""
    run: str | None = None

    @property
    def what(self) -> str:
        """What it is, in a few words."""
        if self.moment is None:
            return self.made or "not found"
        return f"run {self.moment.run[:8]}, attempt {self.moment.attempt}, before step {self.moment.step}"


class Family:
    """A checkpoint and all that it was made from.

    Args:
        places: Where runs and parents may be.
        checkpoint: The checkpoint.
        waybill: Its waybill.

    Attributes:
        members: By key, the checkpoint itself first.
        waybills: The waybills that were found, by key.
    """

    def __init__(self, places: Places, checkpoint: Path, waybill: Waybill) -> None:
        self._places = places
        self.members: dict[str, Relative] = {}
        self.waybills: dict[str, Waybill] = {}
        self._to_do: list[tuple[str, Callable[[], None]]] = []
        self._add(checkpoint, waybill)
        while self._to_do:
            key, learn = self._to_do.pop(0)
            if key not in self.members:
                learn()

    @property
    def unknown(self) -> list[str]:
        """Sentences about the parts of which nothing is known."""
        return list(dict.fromkeys(member.problem for member in self.members.values() if member.problem))

    @property
    def moments(self) -> list[tuple[Path, Moment]]:
        """Folder of the run and moment of each that training made and whose run was found."""
        return [(Path(m.run), m.moment) for m in self.members.values() if m.run is not None and m.moment is not None]

    def tree(self) -> Iterator[tuple[int, Relative, bool]]:
        """Yield the members as a tree is drawn: how deep, who, and whether that was drawn before."""
        drawn: set[str] = set()
        waiting = [(next(iter(self.members)), 0)]
        while waiting:
            key, depth = waiting.pop()
            again = key in drawn
            drawn.add(key)
            yield depth, self.members[key], again
            waiting += [] if again else [(parent, depth + 1) for parent in reversed(self.members[key].parents)]

    def _later(self, parents: Iterable[Base]) -> list[str]:
        """Have parents looked for; return their keys."""
        self._to_do += [(parent.waybill, partial(self._find, parent)) for parent in parents]
        return [parent.waybill for parent in parents]

    def _find(self, parent: Base) -> None:
        key = parent.waybill
        try:
            self._add(*self._places.waybill(parent))
        except LedgerError as error:
            gone = Relative(key, parent.where, "", problem=str(error))
            if (moment := self._places.recorded.get(key)) is not None:
                gone = Relative(key, f"{parent.where}, gone, as its run knows it", moment=moment)
            self._learn(gone)

    def _add(self, where: Path, waybill: Waybill) -> None:
        key = waybill.sha256
        self.waybills[key] = waybill
        problem = f"{where} was imported: what it learned from is not recorded" if waybill.made == IMPORT else ""
        parents = tuple(self._later(waybill.parents))
        member = Relative(key, str(where), waybill.made, waybill.moment, parents, problem)
        self._learn(member, waybill.run_folder)

    def _learn(self, member: Relative, hint: str = "") -> None:
        """Add a member, with the run that taught it and what that began from."""
        if (moment := member.moment) is not None:
            try:
                path = self._places.run(moment.run, hint)
                began, problem = self._origins(path, moment)
                parents = tuple(dict.fromkeys([*member.parents, *began]))
                member = replace(member, parents=parents, problem=problem, run=str(path))
            except LedgerError as error:
                member = replace(member, problem=str(error))
        self.members[member.key] = member

    def _origins(self, path: Path, moment: Moment) -> tuple[list[str], str]:
        """Return what the attempts of a history began from, weights or states of other runs, and what is unknown."""
        launches, parents, problem = self._places.log(path).launches, list[str](), ""
        known_launch(path, launches, moment)
        for launch in (launches[span.attempt] for span in lineage(launches, moment.attempt)):
            parents += self._later(launch.bases)
            if launch.kind == "unknown":
                problem = f"{path} does not know what attempt {launch.attempt} continues"
            elif launch.parent is not None and launch.parent.run != moment.run:
                other = self._stood(launch.parent)
                parents.append(moment_key(other))
                self._to_do.append((parents[-1], partial(self._learn, Relative(parents[-1], "", moment=other))))
        return parents, problem

    def _stood(self, parent: Parent) -> Moment:
        """Return a moment of another run with what waited for its update then, where that run is found."""
        waited: tuple[Range, ...] = ()
        with contextlib.suppress(LadingError):
            waited = pending_at(RunFolder(self._places.run(parent.run)).rank(parent.attempt, 0), parent.step)
        return Moment(**vars(parent), pending=waited)


def moment_key(moment: Moment) -> str:
    """Return what stands for a state that has no waybill."""
    return f"{moment.launch}:{moment.step}"
