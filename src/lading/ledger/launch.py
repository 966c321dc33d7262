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
from typing import Any

from lading.runtime.fields import Fields

KINDS = ("root", "resume", "inferred", "unknown", "replay")
MOST_RANKS = 1 << 20
MOST_ATTEMPTS = 10**6
MOST_STEPS = 1 << 62

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
    sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the record."""
        return {name: value for name, value in asdict(self).items() if name != "sha256"}

    def alike(self, other: Launch) -> bool:
        """Say whether two ranks that are about to launch mean the same launch."""
        return self._meant() == other._meant()

    def _meant(self) -> Sequence[Any]:
        parent = None if self.parent is None else (self.parent.run, self.parent.launch, self.parent.step)
        return self.token, self.world_size, self.start_step, self.plan, self.kind, parent


def launch_from(fields: Fields, sha256: str) -> Launch:
    """Return the launch of a log record, every field checked."""
    start = fields.integer("start_step", low=0, high=MOST_STEPS)
    plan = fields.maybe(Fields.hexadecimal, "plan", digits=16)
    kind = fields.text("kind", choices=KINDS)
    parent = fields.maybe(Fields.record, "parent")
    if (kind in ("resume", "inferred", "replay", "unknown")) != (parent is not None) and kind != "root":
        fields.refuse("parent", f"the parent of a {kind}")
    return Launch(
        attempt=fields.integer("attempt", low=0, high=MOST_ATTEMPTS),
        kind=kind,
        parent=None if parent is None else _parent(parent),
        start_step=start,
        world_size=fields.integer("world_size", low=1, high=MOST_RANKS),
        token=fields.text("token"),
        plan=plan,
        plan_sha256=None if plan is None else fields.hexadecimal("plan_sha256", digits=64),
        events=tuple(dict(fields.items("events").record(i)._values) for i in fields.items("events")),
        pending=ranges(fields, "pending"),
        host=fields.text("host"),
        process=_pair(fields.integers("process", low=0, least=2, most=2)),
        lading=fields.text("lading"),
        time=fields.number("time", low=0, high=1e12),
        sha256=sha256,
    )


def ranges(fields: Fields, key: str) -> tuple[Range, ...]:
    """Return a list of ``[first, stop)``, checked."""
    items = fields.items(key)
    found = [_pair(items.integers(i, low=0, high=MOST_STEPS, least=2, most=2)) for i in items]
    if any(first >= stop for first, stop in found):
        fields.refuse(key, "ranges [first, stop)")
    return tuple(found)


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


def _parent(fields: Fields) -> Parent:
    return Parent(
        run=fields.hexadecimal("run", digits=32),
        launch=fields.hexadecimal("launch", digits=64),
        attempt=fields.integer("attempt", low=0, high=MOST_ATTEMPTS),
        step=fields.integer("step", low=0, high=MOST_STEPS),
    )


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[1]
