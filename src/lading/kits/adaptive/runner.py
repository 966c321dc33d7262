"""The engine's part of chunks that adapt: ask the policies at the end of a chunk, and turn answers into events.

chunk trained on and validated ─▶ resize policy ─▶ Rebatch at the next step (between passes where chunks are chosen)
                               ─▶ choice policy ─▶ Choose for the places up to ``ahead`` chunks after the next one
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lading.errors import LoaderError
from lading.identity import Bill
from lading.kits.adaptive.chosen import Choose, Chosen
from lading.loader.agreeing import agree_on_decision, announcing
from lading.loader.chunks import ChunkEnds, Chunks
from lading.loader.note import Observed, Trackers
from lading.loader.policy import Trained, load_policy, reason_of
from lading.order.adaptation import resizing
from lading.order.event import Rebatch
from lading.order.plan import Plan
from lading.runtime.fields import is_whole


class Ended(NamedTuple):
    """The chunk that ended where the loader is; a state keeps it as long as it is not reported."""

    step: int  # the one after it
    chunk: int  # over all passes
    size: int  # batches of a chunk as they were
    number: int = 0  # in the data, where chunks are chosen
    total: int = 0  # of the data, where chunks are chosen; the rest of a pass has that number


class ChunkRunner(ChunkEnds):
    """Asks the policies of chunks: an ``Observer``."""

    resizes = True

    def __init__(self, chunks: Chunks) -> None:
        super().__init__()
        self.chunks = chunks
        self._ended: Ended | None = None  # of a state that was taken before a chunk was reported
        self._earlier: dict[str, Any] = {}  # what policies remembered before they heard of the last chunk

    def begin(self, engine: Observed, step: int) -> None:
        self.choose(engine, step)

    def amended(self, engine: Observed, bill: Bill) -> Bill:
        """Return a bill with the chunk that its step has now: sizes may have changed since it was read."""
        if bill.chunk is None or not engine.plan.events:
            return bill
        chunk = engine.plan.locate(bill.step).chunk
        return bill if chunk == bill.chunk else bill.replace(chunk=chunk)

    def validated(self, engine: Observed, found: Mapping[str, Any], trackers: Trackers) -> None:
        """Record a validation, and tell the policies what came of the chunk that just ended."""
        if engine.step <= self.last_step:
            return
        self.ended(engine.plan, engine.step)  # refuses a call inside a chunk
        super().validated(engine, found, trackers)
        self._report(engine, found["metric"], found["loss"])

    def _report(self, engine: Observed, metric: float | None, loss: float | None) -> None:
        """Make events of what the policies answer."""
        ended, before = self.ended(engine.plan, engine.step), self._state(engine.plan, engine.step)
        if ended is None:
            return
        try:
            self._decide(engine, ended, Trained(ended.step, ended.chunk, ended.size, metric, loss))
        except Exception:
            self._load(before)  # what was refused is not remembered either
            raise
        self._earlier = before

    def _decide(self, engine: Observed, ended: Ended, trained: Trained) -> None:
        self.last_step = engine.step
        with announcing(engine, "a chunk size", self.chunks.resize):
            resized = self.resized(engine.plan, trained)
        decided = {} if resized is None else {"acts at": resized.step, "batches": resized.chunk_batches}
        agree_on_decision(engine, "a chunk size", decided)
        if resized is not None:
            engine.add_event(resized)
        if self.chunks.choose is not None and ended.number < ended.total:
            self.chunks.choose.observe(ended.number, ended.total, trained)
        self.choose(engine, engine.step)

    def choose(self, engine: Observed, step: int) -> None:
        while (choice := self._chosen(engine, step)) is not None:
            agree_on_decision(engine, "the next chunk", {"acts at": choice.step, "chunk": choice.chosen})
            engine.add_event(choice)

    def _chosen(self, engine: Observed, step: int) -> Choose | None:
        with announcing(engine, "the next chunk", self.chunks.choose):
            return self.choice(engine.plan, step)

    def ended(self, plan: Plan, step: int) -> Ended | None:
        """Return the chunk that ended where a step begins; None where neither plan nor state know what was before."""
        at = plan.locate(step)
        if at.chunk is None or at.chunk_step or not step:
            raise LoaderError(
                f"validated() belongs to the end of a chunk, and the loader is at step {step}, inside one or before "
                "the first. Call it when all batches of a chunk were yielded."
            )
        if step <= plan.first_step:
            return self._ended if self._ended is not None and self._ended.step == step else None
        last, order, number, total = plan.locate(step - 1), plan.order, None, 0
        assert last.chunk is not None
        if isinstance(order, Chosen):
            number, total = order.chunk_at(last.position), order.cut(last.epoch).chunks
        size = plan.clock.pace_at(step - 1).chunk_batches or 0
        return Ended(step, last.chunk, size, total if number is None else number, total)

    def resized(self, plan: Plan, trained: Trained) -> Rebatch | None:
        """Return the event that a validation leads to."""
        if self.chunks.resize is None:
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
        if isinstance(plan.order, Chosen):
            undecided = plan.undecided_from(step)
            undecided = step if undecided is None else undecided
            at = plan.locate(undecided)
            step = plan.epoch_start(at.epoch + 1) if at.offset else undecided
        return resizing(plan, step, size, f"{type(self.chunks.resize).__name__}: {reason_of(self.chunks.resize)}")

    def choice(self, plan: Plan, step: int) -> Choose | None:
        """Return the next choice to make before a step is yielded; None where all that are due were made."""
        order = plan.order
        if self.chunks.choose is None or not isinstance(order, Chosen):
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

    def state(self, plan: Plan, step: int) -> dict[str, Any]:
        """Return what the loader's state keeps of the policies, before a step."""
        return {"chunks": self._state(plan, step)}

    def _state(self, plan: Plan, step: int) -> dict[str, Any]:
        if self.last_step > step:
            return self._before(step)
        policies = {"resize": self.chunks.resize, "choose": self.chunks.choose}
        kept = {
            name: {"kind": type(policy).__name__, "state": policy.state_dict()}
            for name, policy in policies.items()
            if policy is not None
        }
        is_due = step > self.last_step and step and not plan.locate(step).chunk_step
        ended = self.ended(plan, step) if is_due else None
        return {"last_step": self.last_step, **kept, **({} if ended is None else {"ended": list(ended)})}

    def _before(self, step: int) -> dict[str, Any]:
        if not self._earlier or self._earlier["last_step"] > step:
            raise LoaderError(
                f"the policies of chunks heard of two chunks since step {step}, and only what they remembered before "
                "the last is known. Take the state earlier."
            )
        return {name: kept for name, kept in self._earlier.items() if name != "ended"}

    def load(self, saved: Mapping[str, Any]) -> None:
        self._load(saved.get("chunks", {}))

    def _load(self, saved: Mapping[str, Any]) -> None:
        self.last_step, self._earlier = int(saved.get("last_step", -1)), {}
        self._ended = Ended(*saved["ended"]) if "ended" in saved else None
        for name in ("resize", "choose"):
            policy = getattr(self.chunks, name, None)
            if policy is not None and name in saved:
                load_policy(policy, saved[name])
