"""Where an attempt began, and from what: one record of the run's log.

kind       parent
root       none, or an attempt of another run
resume     the attempt that the loaded state was taken in
inferred   the state named no attempt: the newest attempt that holds the step before
unknown    the state names an attempt that this folder does not know
replay     the process went back without loading a state: nothing is undone
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lading.runtime.fields import SHA256, Fields, FieldTable, named, nullable, optional, record_of, tuple_of

KINDS = ("root", "resume", "inferred", "unknown", "replay")
MOST_RANKS = 1 << 20
MOST_ATTEMPTS = 10**6
MOST_STEPS = 1 << 62
_MOST_BASES = _MOST_NOTES = 1 << 10

Range = tuple[int, int]


@dataclass(frozen=True)
class Parent:
    """The attempt that another one continues.

    Attributes:
        run: Id of its run.
        launch: SHA-256 of its launch record.
        attempt: Its number.
        step: The first of its steps that the child does not have; of a replay, where the child starts.
    """

    run: str
    launch: str
    attempt: int
    step: int


@dataclass(frozen=True)
class Seal:
    """What the ranks of earlier attempts had recorded when they ended (see ``lading.ledger.seal``).

    Attributes:
        sha256: Of the seal before and a line for each rank that ended since.
        stop: Attempts below this number are in this seal or in one before.
        open: (attempt, first rank, stop) of their ranks that are in none: they run, died, or never began.
    """

    sha256: str
    stop: int
    open: tuple[tuple[int, int, int], ...] = ()

    def holds(self, attempt: int, rank: int) -> bool:
        """Say whether a rank is in this seal or in one before."""
        return attempt < self.stop and not any(a == attempt and first <= rank < end for a, first, end in self.open)


@dataclass(frozen=True)
class Base:
    """A checkpoint that the weights of an attempt were loaded from.

    Attributes:
        waybill: SHA-256 of its waybill.
        where: Where it was, a hint.
    """

    waybill: str
    where: str


@dataclass(frozen=True)
class Launch:
    """Where an attempt began.

    Attributes:
        attempt: Its number in the run, from 0: how many launches there were before it.
        kind: ``root``, ``resume``, ``inferred``, ``unknown`` or ``replay``.
        parent: The attempt it continues, or None.
        start_step: The first step it delivers.
        world_size: Number of ranks.
        token: Stands for the launch; equal for the ranks that were started together.
        plan: Fingerprint of the plan, or None where nothing predicts the order.
        plan_sha256: SHA-256 of the plan's file.
        events: Plan events in force when it began, as JSON-able fields.
        pending: Ranges ``[first, stop)`` of steps that were delivered and used by no update when the checkpoint was
            taken: after the resume none will use them.
        host: Machine of the process that opened it.
        process: Id and start time of that process.
        lading: Lading's version.
        time: Seconds since 1970.
        seal: What was sealed before it; None where nothing was.
        bases: The checkpoints that its weights were loaded from.
        notes: Sentences about the attempt, which ``verify`` repeats.
        sha256: Of the record's file; what states and children know it by. "" before it is written.
    """

    attempt: int
    kind: str
    parent: Parent | None
    start_step: int
    world_size: int
    token: str
    plan: str | None
    plan_sha256: str | None
    events: tuple[dict[str, Any], ...]
    pending: tuple[Range, ...]
    host: str
    process: tuple[int, int]
    lading: str
    time: float
    seal: Seal | None = None
    bases: tuple[Base, ...] = ()
    notes: tuple[str, ...] = ()
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the record; what is not used is absent."""
        unused = {"sha256", *(name for name in ("seal", "bases", "notes") if not getattr(self, name))}
        return {name: value for name, value in asdict(self).items() if name not in unused}

    def alike(self, other: Launch) -> bool:
        """Say whether two ranks that are about to launch mean the same launch."""
        return self._meant() == other._meant()

    def _meant(self) -> Sequence[Any]:
        parent = None if self.parent is None else (self.parent.run, self.parent.launch, self.parent.step)
        return self.token, self.world_size, self.start_step, self.plan, self.kind, parent


def launch_from(fields: Fields, values: dict[str, Any], sha256: str) -> Launch:
    """Return the launch of a log record whose fields were read by ``LAUNCH``."""
    launch = Launch(**values, sha256=sha256)
    if launch.kind != "root" and launch.parent is None:
        fields.refuse("parent", f"the parent of a {launch.kind}")
    if (launch.plan is None) != (launch.plan_sha256 is None):
        fields.refuse("plan_sha256", "64 hexadecimal digits" if launch.plan else "null: there is no plan")
    return launch


def ranges(fields: Fields, key: str) -> tuple[Range, ...]:
    """Return an ascending list of ``[first, stop)``, checked."""
    found: tuple[Range, ...] = _PAIRS(fields, key)
    edges = [edge for pair in found for edge in pair]
    if any(first >= stop for first, stop in found) or edges != sorted(edges):
        fields.refuse(key, "ascending ranges [first, stop)")
    return found


def as_ranges(steps: Sequence[int]) -> list[list[int]]:
    """Return ascending steps as ranges ``[first, stop)``.

    >>> as_ranges([4, 5, 9])
    [[4, 6], [9, 10]]
    """
    found: list[list[int]] = []
    for step in steps:
        if found and found[-1][1] == step:
            found[-1][1] = step + 1
        else:
            found.append([step, step + 1])
    return found


def seal_from(fields: Fields, key: str) -> Seal:
    """Return a seal, checked."""
    found = Seal(**fields.record(key).each(_SEAL))
    if any(first >= stop for _, first, stop in found.open):
        fields.refuse(key, "open ranks as attempt, first rank, stop")
    return found


RUN = partial(Fields.hexadecimal, digits=32)
ATTEMPT = partial(Fields.integer, low=0, high=MOST_ATTEMPTS)
STEP = partial(Fields.integer, low=0, high=MOST_STEPS)
TIME = partial(Fields.number, low=0, high=1e12)
_PAIRS = tuple_of(partial(Fields.integers, low=0, high=MOST_STEPS, least=2, most=2))
_OPEN_RANKS = partial(Fields.integers, low=0, high=MOST_RANKS, least=3, most=3)
PROCESS = partial(Fields.integers, low=0, least=2, most=2)  # id and start time
_BASE: FieldTable = {"waybill": SHA256, "where": Fields.text}
_SEAL: FieldTable = {"sha256": SHA256, "stop": ATTEMPT, "open": tuple_of(_OPEN_RANKS, most=MOST_RANKS)}
PARENT: FieldTable = {"run": RUN, "launch": SHA256, "attempt": ATTEMPT, "step": STEP}
BASES = tuple_of(record_of(Base, _BASE), most=_MOST_BASES)
LAUNCH: FieldTable = {
    "attempt": ATTEMPT,
    "kind": partial(Fields.text, choices=KINDS),
    "parent": nullable(record_of(Parent, PARENT)),
    "start_step": STEP,
    "world_size": partial(Fields.integer, low=1, high=MOST_RANKS),
    "token": Fields.text,
    "plan": nullable(Fields.hexadecimal, digits=16),
    "plan_sha256": nullable(Fields.hexadecimal, digits=64),
    "events": tuple_of(named(Fields.value)),
    "pending": ranges,
    "host": Fields.text,
    "process": PROCESS,
    "lading": Fields.text,
    "time": TIME,
    "seal": optional(seal_from),
    "bases": optional(BASES, ()),
    "notes": optional(Fields.texts, (), most=_MOST_NOTES),
}
