"""The engine's part of chunks that adapt: ask the policies at the end of a chunk, and turn answers into events.

    chunk trained on and validated ─▶ resize policy ─▶ Rebatch at the next step (between passes where chunks are chosen)
                                   ─▶ choice policy ─▶ Choose for the places up to ``ahead`` chunks after the next one

Apart from ``engine``: the policies, what they remember, and when they are asked.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from lading.errors import LoaderError, ResumeError, WorldError
from lading.identity import World
from lading.identity.agreement import agree
from lading.loader.adaptive.chunks import Chunks
from lading.loader.adaptive.policies import Trained
from lading.loader.reweighting import reason_of
from lading.order.chosen import Chosen
from lading.order.curriculum.levels import Levels
from lading.order.event import Choose, Event, Rebatch, Rescore
from lading.order.plan import Plan
from lading.runtime.numbers import is_whole


class Adaptable(Protocol):
    """What is asked of the engine."""

    @property
    def plan(self) -> Plan: ...
    @property
    def step(self) -> int: ...
    @property
    def world(self) -> World: ...

    def add_event(self, event: Event) -> None:
        """Change the plan from a step on that has not been yielded."""
        ...


class ChunkRunner:
    """Asks the policies of chunks.

    Args:
        chunks: What the user asked for; None without chunks.
    """

    def __init__(self, chunks: Chunks | None) -> None:
        self.chunks = chunks
        self.last_step = -1  # the end of the chunk that policies heard of last

    @property
    def adapts(self) -> bool:
        """Whether there is a policy to ask."""
        return self.chunks is not None and (self.chunks.resize is not None or self.chunks.choose is not None)

    def report(self, engine: Adaptable, metric: float | None, loss: float | None) -> None:
        """Tell the policies what came of the chunk that just ended, and make events of what they answer."""
        if not self.adapts:
            return
        trained, before = self.trained(engine.plan, engine.step, metric, loss), self.state()
        try:
            self._decide(engine, trained)
        except Exception:
            self.load(before)  # what was refused is not remembered either
            raise

    def _decide(self, engine: Adaptable, trained: Trained) -> None:
        self.last_step = engine.step
        with announcing(engine, "a chunk size", self.chunks and self.chunks.resize):
            resized = self.resized(engine.plan, trained)
        decided = {} if resized is None else {"acts at": resized.step, "batches": resized.chunk_batches}
        _agree(engine, "a chunk size", decided)
        if resized is not None:
            engine.add_event(resized)
        self.observe(engine.plan, trained)
        self.choose(engine, engine.step)

    def choose(self, engine: Adaptable, step: int) -> None:
        """Choose the chunks that are due before a step is yielded."""
        while (choice := self._chosen(engine, step)) is not None:
            _agree(engine, "the next chunk", {"acts at": choice.step, "chunk": choice.chosen})
            engine.add_event(choice)

    def _chosen(self, engine: Adaptable, step: int) -> Choose | None:
        with announcing(engine, "the next chunk", self.chunks and self.chunks.choose):
            return self.choice(engine.plan, step)

    def trained(self, plan: Plan, step: int, metric: float | None, loss: float | None) -> Trained:
        """Return what policies learn when the loader is at a step, the first of a chunk."""
        at = plan.locate(step)
        if at.chunk is None or at.chunk_step or not step:
            raise LoaderError(
                f"validated() belongs to the end of a chunk, and the loader is at step {step}, inside one or before "
                "the first. Call it when all batches of a chunk were yielded."
            )
        last = plan.locate(step - 1)
        assert last.chunk is not None
        return Trained(step, last.chunk, plan.clock.pace_at(step - 1).chunk_batches or 0, metric, loss)

    def resized(self, plan: Plan, trained: Trained) -> Rebatch | None:
        """Return the event that a validation leads to."""
        if self.chunks is None or self.chunks.resize is None:
            return None
        size = self.chunks.resize(trained)
        if size is None:
            return None
        if not is_whole(size, 1):
            raise LoaderError(
                f"{type(self.chunks.resize).__name__} chose chunks of {size!r} batches: expected an integer of at "
                "least 1, or None to leave them as they are."
            )
        size, step = int(size), trained.step
        if plan.chosen_chunks:
            undecided = plan.undecided_from(step)
            undecided = step if undecided is None else undecided
            at = plan.locate(undecided)
            step = plan.epoch_start(at.epoch + 1) if at.offset else undecided
        return plan.resizing(step, size, f"{type(self.chunks.resize).__name__}: {reason_of(self.chunks.resize)}")

    def observe(self, plan: Plan, trained: Trained) -> None:
        """Tell the policy that chooses about the chunk that was trained on."""
        order = plan.order
        if self.chunks is None or self.chunks.choose is None or not isinstance(order, Chosen):
            return
        position = plan.locate(trained.step - 1).position
        number, total = order.chunk_at(position), order.cut(position // order.epoch_samples).chunks
        if number is not None and number < total:
            self.chunks.choose.observe(number, total, trained)

    def choice(self, plan: Plan, step: int) -> Choose | None:
        """Return the next choice to make before a step is yielded; None where all that are due were made."""
        order = plan.order
        if self.chunks is None or self.chunks.choose is None or not isinstance(order, Chosen):
            return None
        undecided = order.undecided_from(step)
        if undecided is None:
            return None
        at, now = plan.locate(undecided), plan.locate(step).chunk
        assert at.chunk is not None and now is not None
        if at.chunk > now + self.chunks.ahead:
            return None
        candidates, total = order.remaining(at.epoch), order.cut(at.epoch).chunks
        chosen = self.chunks.choose(candidates, total, at.chunk)
        if chosen not in candidates:
            raise LoaderError(
                f"{type(self.chunks.choose).__name__} chose chunk {chosen!r}: expected one of {candidates[:8]}."
            )
        return Choose(undecided, int(chosen), f"{type(self.chunks.choose).__name__}: {reason_of(self.chunks.choose)}")

    def state(self) -> dict[str, Any]:
        """Return what the loader's state keeps of the policies; empty without any."""
        if self.chunks is None or not self.adapts:
            return {}
        policies = {"resize": self.chunks.resize, "choose": self.chunks.choose}
        kept = {
            name: {"kind": type(policy).__name__, "state": policy.state_dict()}
            for name, policy in policies.items()
            if policy is not None
        }
        return {"last_step": self.last_step, **kept}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        self.last_step = int(saved.get("last_step", -1))
        for name in ("resize", "choose"):
            policy, kept = getattr(self.chunks, name, None), saved.get(name)
            if policy is None or kept is None:
                continue
            if kept["kind"] != type(policy).__name__:
                raise ResumeError(
                    f"the state was saved with the policy {kept['kind']}, this loader has {type(policy).__name__}. Use "
                    "the same policy, or set state['policy'] = '{}' to begin the new one afresh."
                )
            try:
                policy.load_state_dict(kept["state"])
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ResumeError(
                    f"the state of the policy {kept['kind']} is damaged: {type(error).__name__}: {error}. Take an "
                    "older checkpoint."
                ) from error


def measured(name: str, value: Any) -> float | None:
    """Return what was measured as a number; None where nothing was, or nothing sensible (NaN, infinity)."""
    try:
        found = None if value is None or isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        found = None
    if found is None and value is not None:
        raise LoaderError(f"{name}={value!r}: expected a number, or None where nothing was measured.")
    return found if found is not None and math.isfinite(found) else None


def rescored(engine: Adaptable, levels: Levels, reason: str) -> Rescore | None:
    """Give samples other difficulties from the next epoch on that cannot have been prefetched."""
    plan = engine.plan
    at = plan.locate(engine.step + plan.lookahead_steps)
    event = plan.rescoring(plan.epoch_start(at.epoch + bool(at.epoch_step)), levels, reason)
    _agree(engine, "a rescoring", {} if event is None else {"acts at": event.step, "scores": event.levels.sha256})
    if event is not None:
        engine.add_event(event)
    return event


@contextlib.contextmanager
def announcing(engine: Adaptable, what: str, policy: Any) -> Iterator[None]:
    """Let the other ranks know when a policy raises inside the block: they have an answer, and wait to compare it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"raised by the policy {type(policy).__name__}, asked before step {engine.step}")
        with contextlib.suppress(WorldError):
            _agree(engine, what, {"refused": f"{type(error).__name__}: {error}"})
        raise


def _agree(engine: Adaptable, what: str, decided: Mapping[str, Any]) -> None:
    agree(
        engine.world,
        what,
        {"next step": engine.step, **decided},
        way_out="Policies must see the same on every rank: average metrics and losses over the ranks, and report "
        "them after the same step. Nothing was changed.",
    )
