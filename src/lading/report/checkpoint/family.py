"""The family of a checkpoint: what it was made from, what that was made from, and the runs that taught each.

    merge ─┬─▶ tuned ── run B, steps 0..399 ──▶ pretrained ── run A, steps 0..9 999
           └─▶ other ── run C (not found: its part of every answer is unknown)

Parents are named by the SHA-256 of their waybill, attempts by that of their
launch record: what was put in their place is not taken for them. Each is
visited once, however many ways lead to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lading.errors import LadingError
from lading.ledger.events import pending_at
from lading.ledger.launch import Base
from lading.ledger.lineage import lineage
from lading.ledger.run_folder import RunFolder
from lading.ledger.waybill.waybill import IMPORT, TRAINING, Moment, Waybill
from lading.report.checkpoint.places import Places
from lading.report.evidence import known_launch


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
        self._to_do: list[Base | Moment] = []
        self._add(str(checkpoint), waybill)
        while self._to_do:
            relative = self._to_do.pop(0)
            key = relative.waybill if isinstance(relative, Base) else moment_key(relative)
            if key not in self.members:
                self._find(relative) if isinstance(relative, Base) else self._learn(Relative(key, "", moment=relative))

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

    def _find(self, parent: Base) -> None:
        path, waybill, why = self._places.waybill(parent.waybill, parent.where)
        moment = self._places.recorded(parent.waybill) if waybill is None else None
        if waybill is not None:
            self._add(str(path), waybill)
        elif moment is not None:
            self._learn(Relative(parent.waybill, f"{parent.where}, gone, as its run knows it", moment=moment))
        else:
            problem = f"a parent was not found: {why}"
            self.members[parent.waybill] = Relative(parent.waybill, parent.where, "", problem=problem)

    def _add(self, where: str, waybill: Waybill) -> None:
        self.waybills[waybill.sha256] = waybill
        self._to_do += waybill.parents
        parents = tuple(parent.waybill for parent in waybill.parents)
        member = Relative(waybill.sha256, where, waybill.made, waybill.moment, parents)
        if waybill.made == IMPORT:
            member = replace(member, problem=f"{where} was imported: what it learned from is not recorded")
        self._learn(member, waybill.run_folder)

    def _learn(self, member: Relative, hint: str = "") -> None:
        """Add a member, with the run that taught it and what that began from."""
        self.members[member.key] = member
        if (moment := member.moment) is None:
            return
        path, problem = self._places.run(moment.run, hint)
        run, parents = None, [*member.parents]
        if path is not None:
            try:
                known_launch(path, self._places.log(path).launches, moment)
                run, problem = str(path), self._origins(path, moment, parents)
            except LadingError as error:
                problem = f"run {moment.run} cannot be asked: {error}"
        self.members[member.key] = replace(member, parents=tuple(dict.fromkeys(parents)), problem=problem, run=run)

    def _origins(self, path: Path, moment: Moment, parents: list[str]) -> str:
        """Add what the attempts of a history began from: weights, states of other runs; return what is unknown."""
        launches, problem = self._places.log(path).launches, ""
        for launch in (launches[span.attempt] for span in lineage(launches, moment.attempt)):
            parent = launch.parent
            self._to_do += launch.bases
            parents += [base.waybill for base in launch.bases]
            if launch.kind == "unknown":
                problem = f"{path} does not know what attempt {launch.attempt} continues"
            elif parent is not None and parent.run != moment.run:
                other = self._stood(Moment(parent.run, parent.launch, parent.attempt, parent.step))
                self._to_do.append(other)
                parents.append(moment_key(other))
        return problem

    def _stood(self, moment: Moment) -> Moment:
        """Return a moment of another run with what waited for its update then, where that run is found."""
        path, _ = self._places.run(moment.run, "")
        with contextlib.suppress(LadingError):
            waited = () if path is None else pending_at(RunFolder(path).rank(moment.attempt, 0), moment.step)
            return replace(moment, pending=waited)
        return moment


def moment_key(moment: Moment) -> str:
    """Return what stands for a state that has no waybill."""
    return f"{moment.launch}:{moment.step}"
