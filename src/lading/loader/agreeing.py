"""What changes a plan while it runs is decided alike on every rank, or on none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lading.errors import PlanError, WorldError
from lading.identity import fingerprint
from lading.identity.world import agree
from lading.loader.note import Observed
from lading.order import Block
from lading.runtime.fields import whole

_POLICIES = (
    "Policies must see the same on every rank: average metrics and losses over the ranks, and report them after the "
    "same step. Nothing was changed."
)


def agree_on_decision(engine: Observed, what: str, decided: Mapping[str, Any], way_out: str = _POLICIES) -> None:
    """Compare what this rank decided with the others."""
    agree(engine.world, what, {"next step": engine.step, **decided}, way_out=way_out)


@contextlib.contextmanager
def announcing(engine: Observed, what: str, policy: Any) -> Iterator[None]:
    """Let the other ranks know when a policy raises inside the block: they have an answer, and wait to compare it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the policy {type(policy).__name__}, asked before step {engine.step}")
        with contextlib.suppress(WorldError):
            agree_on_decision(engine, what, {"refused": f"{type(error).__name__}: {error}"})
        raise


def blocking(engine: Observed, dataset: str | int, indices: Sequence[int], step: int, reason: str) -> Block:
    """Return the event that replaces samples by substitutes from a step on; every rank must ask for the same."""
    chosen = tuple(number for index in indices if (number := whole(index)) is not None)
    if len(chosen) < len(indices):
        raise PlanError(f"samples {list(indices)[:5]} of dataset {dataset!r}: expected their indices, integers.")
    event = Block(step, engine.plan.number_of(dataset), chosen, reason)
    decided = {"acts at": event.step, "dataset": event.dataset, "samples": fingerprint(event.indices)}
    way_out = "Every rank must call it after the same step, with the same samples. Nothing was changed."
    agree_on_decision(engine, "a block", decided, way_out)
    return event
