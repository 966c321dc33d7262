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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lading.errors import CorruptLedgerError, LadingError, LedgerError
from lading.ledger.description import KnownRun
from lading.ledger.events import pending_at
from lading.ledger.launch import Base, Range
from lading.ledger.lineage import lineage
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.waybill import IMPORT, TRAINING, Moment, Waybill, described_by, waybill_at, waybill_path
from lading.report.evidence import known_launch
from lading.report.runs_below import runs_in
from lading.runtime.fields import Origin
from lading.runtime.paths import local_path

Ancestor = Base | Moment  # a checkpoint, or a state that has no waybill
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
        self.log = functools.cache(lambda run: KnownRun(RunFolder(run)).log())  # of the folder of a run

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

    def waybill(self, parent: Base) -> tuple[Path, Waybill]:
        """Return the checkpoint whose waybill has the SHA-256 of a parent, and that; refuse another one."""
        why = "nothing says where it lies"
        try:
            if parent.where:
                at_hint = waybill_at(waybill_path(Path(parent.where)))
                if at_hint.sha256 == parent.waybill:
                    return Path(parent.where), at_hint
                why = f"the waybill at {parent.where} was changed, or is another checkpoint's: {at_hint.sha256[:16]}"
        except (LadingError, OSError) as error:
            why = f"the waybill at {parent.where} cannot be read ({error})"
        if parent.waybill in self._waybills:
            return self._waybills[parent.waybill]
        raise LedgerError(f"a parent was not found: {why}, expected {parent.waybill[:16]}")

    @functools.cached_property
    def recorded(self) -> dict[str, Moment]:
        """Where training stood at checkpoints that may be gone, by waybill: the logs of their runs know them."""
        found = {}
        for run, path in self._runs.items():
            with contextlib.suppress(LadingError):
                log = self.log(path)
                for s in (saved for saved in log.checkpoints if saved.attempt in log.launches):
                    launch = log.launches[s.attempt].sha256
                    found[s.waybill] = Moment(run, launch, s.attempt, s.step, s.update, pending=s.pending)
        return found

    @functools.cached_property
    def _runs(self) -> dict[str, Path]:
        below = (path for root in self.roots for path in runs_in(root))
        return {run: path for path in below if (run := run_id(path)) is not None}

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
        for path in (Path(folder, name) for name in sorted(files)):
            with contextlib.suppress(CorruptLedgerError):
                if (checkpoint := described_by(path)) is not None:
                    yield checkpoint, waybill_at(path)


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

    Attributes:
        members: By key, the checkpoint itself first.
        waybills: The waybills that were found, by key.
    """

    def __init__(self, places: Places, checkpoint: Path, waybill: Waybill) -> None:
        self._places = places
        self.members: dict[str, Relative] = {}
        self.waybills: dict[str, Waybill] = {}
        waiting: list[Ancestor] = [Base(waybill.sha256, str(checkpoint))]
        while waiting:
            origin = waiting.pop(0)
            waiting += [] if key_of(origin) in self.members else self._add(origin)

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

    def _add(self, origin: Ancestor) -> list[Ancestor]:
        """Add what something was made from, with the run that taught it; return what that was made from."""
        key = key_of(origin)
        member = Relative(key, "", moment=origin) if isinstance(origin, Moment) else self._found(origin)
        waybill = self.waybills.get(key)
        origins: list[Ancestor] = [] if waybill is None else [*waybill.parents]
        try:
            if member.moment is not None:
                path = self._places.run(member.moment.run, "" if waybill is None else waybill.run_folder)
                member = replace(member, problem=self._began_from(path, member.moment, origins), run=str(path))
        except LedgerError as error:
            member = replace(member, problem=str(error))
        self.members[key] = replace(member, parents=tuple(dict.fromkeys(map(key_of, origins))))
        return origins

    def _found(self, origin: Base) -> Relative:
        """Return a checkpoint as its waybill tells it, or the log of its run, or why it was not found."""
        key = origin.waybill
        try:
            where, found = self._places.waybill(origin)
        except LedgerError as error:
            gone, moment = f"{origin.where}, gone, as its run knows it", self._places.recorded.get(key)
            return Relative(key, gone, moment=moment) if moment else Relative(key, origin.where, "", problem=str(error))
        self.waybills[key] = found
        problem = f"{where} was imported: what it learned from is not recorded" if found.made == IMPORT else ""
        return Relative(key, str(where), found.made, found.moment, problem=problem)

    def _began_from(self, path: Path, moment: Moment, origins: list[Ancestor]) -> str:
        """Add what the attempts of a history began from, weights or states of other runs; return what is unknown."""
        launches, problem = self._places.log(path).launches, ""
        known_launch(path, launches, moment)
        for launch in (launches[span.attempt] for span in lineage(launches, moment.attempt)):
            origins += launch.bases
            if launch.kind == "unknown":
                problem = f"{path} does not know what attempt {launch.attempt} continues"
            elif launch.parent is not None and launch.parent.run != moment.run:
                waited: tuple[Range, ...] = ()  # for its update; known where that run is found
                with contextlib.suppress(LadingError):
                    folder = RunFolder(self._places.run(launch.parent.run))
                    waited = pending_at(folder.rank(launch.parent.attempt, 0), launch.parent.step)
                origins.append(Moment(**vars(launch.parent), pending=waited))
        return problem


def key_of(origin: Ancestor) -> str:
    """Return what stands for a checkpoint in its family: the SHA-256 of its waybill, or the moment of a state."""
    return origin.waybill if isinstance(origin, Base) else f"{origin.launch}:{origin.step}"
