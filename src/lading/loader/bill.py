"""Bill the coming steps: what this process reads, decided before anything is read.

step ─▶ plan.bill ─▶ rows of this process ─▶ FetchRequest
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from lading.identity import World
from lading.loader.fetch import FetchRequest
from lading.loader.place import Face
from lading.order import Plan

_NOTHING: Mapping[int, frozenset[int]] = {}


class Billing(Protocol):
    """What is asked of the engine, at each step anew: events change the plan."""

    @property
    def plan(self) -> Plan: ...
    @property
    def world(self) -> World: ...
    @property
    def face(self) -> Face: ...


def prepare(plan: Plan) -> None:
    """Work out now what bills need, so that the first is as quick as any."""
    plan.batch_id(0, plan.first_step)
    _ = plan.order, plan.blocklist


def request_at(engine: Billing, step: int, names: Mapping[str, str]) -> FetchRequest:
    """Return what is to be fetched for a step; ``names``: the key in dict batches of each name column."""
    plan, face = engine.plan, engine.face
    blocked = _NOTHING
    if plan.blocklist is not None:
        blocked = {d: frozenset(table) for d, table in plan.blocked_at(step).items()}
    rows = plan.clock.batch_at(step) if face.places else 0
    return FetchRequest(face.share(plan, step, engine.world), names, blocked, rows)


def billed(reference: weakref.ref[Billing], steps: Iterable[int], names: Mapping[str, str]) -> Iterator[FetchRequest]:
    """Yield the requests of some steps, as far as they are decided.

    It keeps no engine alive: persistent workers keep it, and end with their engine.
    """
    for step in steps:
        engine = reference()
        if engine is None or engine.plan.undecided_from(step) == step:
            return
        request = request_at(engine, step, names)
        del engine
        yield request
