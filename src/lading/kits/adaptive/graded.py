"""The order of a run with a curriculum: from a pool of easy samples that grows, then from everything.

    position   0 ─────────────── growing ───────────────▶ │ everything is in ─────▶
    drawn      levels 0..k by their sizes, k rising        │ pass after pass over all samples
               (the split tree of mixtures; level by level,
               pass by pass)

Both directions are arithmetic, on levels. What new scores change (``Rescore``)
begins at an epoch border: an *era* of its own, with passes of its own.

The cut into rounds is that of the planned batch size, whatever the steps are
by now: a change of batch size moves no sample to another position.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.identity import fingerprint
from lading.identity.hashing import key64
from lading.kits.adaptive.levels import CurriculumSpec, Levels, read_levels
from lading.order.adaptation import Adaptation, PlanView
from lading.order.clock import Batching, Clock, Location
from lading.order.decided import AdaptedBase, AdaptiveEvent
from lading.order.event import Event, ResumeBase
from lading.order.mixture.order import Mixed, Passes
from lading.order.mixture.spec import MAX_POSITION, MixtureSpec, integer_weights
from lading.order.shuffle import Order
from lading.runtime.fields import COUNT, REASON, Fields, FieldTable


@dataclass(frozen=True)
class Rescore(AdaptiveEvent):
    """Other difficulties of samples, for a plan with a curriculum.

    Attributes:
        step: First step that uses them, the first of an epoch.
        position: Its position.
        levels: The level of each sample.
        reason: Who requested it.
    """

    kind: ClassVar[str] = "rescore"
    table: ClassVar[FieldTable] = {"step": COUNT, "position": COUNT, "levels": read_levels, "reason": REASON}
    step: int
    position: int
    levels: Levels
    reason: str = ""

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        return {**vars(self), "levels": self.levels.to_dict(whole=whole)}

    @property
    def decided(self) -> str:
        """What was decided, in a few words."""
        return f"scores {self.levels.sha256[:12]}"


@dataclass(frozen=True)
class ScoresBase(AdaptedBase):
    """The difficulties in force, where they are no longer the plan's."""

    scores: Rescore

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        return {"scores": {"kind": self.scores.kind, **self.scores.to_dict(whole=whole)}}

    @classmethod
    def read(cls, fields: Fields) -> ScoresBase:
        return cls(Rescore.read(fields))


I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


class Era:
    """The order from one set of scores to the next; positions count from its start.

    Args:
        start: Position in the run at which it begins.
        spec: The stages of the run.
        batch: Samples of a round, and whether incomplete ones are dropped.
        passes: Shuffle and window size of passes.
    """

    def __init__(
        self,
        start: int,
        levels: Levels,
        spec: CurriculumSpec,
        seed: int,
        batch: tuple[int, bool],
        passes: tuple[str, int],
    ) -> None:
        self.start, self.levels = start, levels
        sizes, total = levels.sizes.tolist(), len(levels.found)
        if len(sizes) != spec.stages[-1][1]:
            raise PlanError(
                f"the scores make {len(sizes)} levels, the plan has {spec.stages[-1][1]}: expected as many."
            )
        stages: list[tuple[int, tuple[int, ...]]] = []
        for position, pool in spec.stages:
            # Level by level while some are missing; one more "level", everything, when none is.
            shares = [*sizes[:pool], *[0] * (len(sizes) - pool), 0] if pool < len(sizes) else [0] * len(sizes) + [1]
            if position <= start:
                stages.clear()
            stages.append((max(position - start, 0), integer_weights(shares)))
        drawn = Passes([*sizes, total], key64(seed, "curriculum", start), *passes)
        clock = Clock(total, Batching(((0, batch[0]),), batch[1]), gapless=True, limit=MAX_POSITION)
        self.mixed = Mixed(drawn, MixtureSpec(total, tuple(stages)), clock)

    def samples(self, start: int, stop: int) -> I64:
        """Return the samples at some positions, counted over all sources."""
        level, index = self.mixed.samples(start, stop)
        return self._flat(level.astype(np.int64), index)

    def positions(self, flat: int, start: int, stop: int) -> I64:
        level = int(self.levels.found[flat])
        inside = int(self.levels.places[flat] - self.levels.starts[level])
        found = [
            self.mixed.positions(*which, start, stop) for which in ((level, inside), (len(self.levels.sizes), flat))
        ]
        return np.sort(np.concatenate(found))

    def counts(self, position: int, owners: I32, sources: int) -> I64:
        """Return how many samples of each source lie before a position; ``owners``: the source of each sample."""
        total = np.zeros(sources, dtype=np.int64)
        for level, drawn in enumerate(self.mixed.counts(position)):
            length = self.mixed.lengths[level]
            passes, rest = divmod(drawn, length)
            if passes:
                total += passes * np.bincount(owners[self._flat(level, np.arange(length))], minlength=sources)
            draws = np.arange(drawn - rest, drawn)
            index = self.mixed.passes.indices(None, np.full(rest, level, dtype=np.int32), draws)
            total += np.bincount(owners[self._flat(level, index)], minlength=sources)
        return total

    def mark(self, position: int, seen: NDArray[np.bool_]) -> None:
        for level, drawn in enumerate(self.mixed.counts(position)):
            first = min(drawn, self.mixed.lengths[level])
            numbers = np.full(first, level, dtype=np.int32)
            seen[self._flat(level, self.mixed.passes.indices(None, numbers, np.arange(first)))] = True

    def _flat(self, level: I64 | int, index: I64) -> I64:
        starts = np.append(self.levels.starts[:-1], 0)
        whole = np.broadcast_to(np.equal(level, len(self.levels.sizes)), index.shape)
        place = np.where(whole, 0, starts[level] + index)
        return np.where(whole, index, self.levels.members[place])


class Graded:
    """Samples by difficulty: the ``Order`` of a plan with a curriculum.

    Args:
        batch: Global batch size that the plan began with, and whether incomplete batches are dropped.
        passes: Shuffle and window size of passes.
        rescored: (position, levels) of new scores, ascending.
    """

    def __init__(
        self,
        lengths: tuple[int, ...],
        spec: CurriculumSpec,
        seed: int,
        batch: tuple[int, bool],
        passes: tuple[str, int],
        rescored: Sequence[tuple[int, Levels]] = (),
    ) -> None:
        self._given = lengths, spec, seed, batch, passes, tuple(rescored)
        self.lengths, self.spec, self.epoch_samples = lengths, spec, sum(lengths)
        known = [(0, spec.levels), *rescored]
        if any(levels.numbers is not None and len(levels.found) != self.epoch_samples for _, levels in known):
            raise PlanError(f"the curriculum has not one level for each of the plan's {self.epoch_samples} samples.")
        self._make = functools.lru_cache(maxsize=8)(lambda k: Era(*known[k], spec, seed, batch, passes))
        self._starts = [start for start, _ in known]
        self._borders = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)

    def pool_at(self, position: int) -> int:
        """Return how many samples are in the pool at a position."""
        era = self._make(self._number(position))
        pool = [k for start, k in self.spec.stages if start <= position][-1]
        return int(era.levels.starts[pool])

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        parts = [np.empty(0, dtype=np.int64)]
        for k, low, high in self._cuts(start, stop):
            parts.append(self._make(k).samples(low - self._starts[k], high - self._starts[k]))
        return self._named(np.concatenate(parts))

    def step_samples(self, start: int, size: int, first: int = 0, stop: int | None = None) -> tuple[I32, I64]:
        return self.samples(start + first, start + (size if stop is None else stop))

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        flat, found = int(self._borders[dataset]) + index, [np.empty(0, dtype=np.int64)]
        for k, low, high in self._cuts(start, stop):
            first = self._starts[k]
            found.append(self._make(k).positions(flat, low - first, high - first) + first)
        return np.concatenate(found)

    def counts(self, position: int) -> list[int]:
        owners = np.repeat(np.arange(len(self.lengths), dtype=np.int32), self.lengths)
        total = np.zeros(len(self.lengths), dtype=np.int64)
        for k, low, high in self._cuts(0, position):
            total += self._make(k).counts(high - low, owners, len(self.lengths))
        return [int(n) for n in total]

    def reached(self, position: int) -> list[int]:
        """Return how many different samples of each source lie before a position."""
        seen = np.zeros(self.epoch_samples, dtype=bool)
        for k, low, high in self._cuts(0, position):
            self._make(k).mark(high - low, seen)
        return [int(np.count_nonzero(part)) for part in np.split(seen, self._borders[1:-1])]

    def planned(self, starts: I64, sizes: I64) -> NDArray[np.float64]:
        """Return the samples of each source that the pools of some steps ask for, in all steps together."""
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        found = np.zeros(len(self.lengths))
        keys = [(self._number(p), self.pool_at(p)) for p in starts.tolist()]
        for k, pool in set(keys):
            inside = np.bincount(owners[self._make(k).levels.members[:pool]], minlength=len(self.lengths))
            mine = np.array([key == (k, pool) for key in keys])
            found += inside / pool * float(sizes[mine].sum())
        return found

    def __reduce__(self) -> tuple[type[Graded], tuple[object, ...]]:
        return Graded, self._given

    def _number(self, position: int) -> int:
        return bisect.bisect_right(self._starts, position) - 1

    def _cuts(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (era, first, stop) of the eras that positions fall into."""
        if stop <= start:
            return []
        inside = [s for s in self._starts if start < s < stop]
        return [(self._number(a), a, b) for a, b in itertools.pairwise([start, *inside, stop])]

    def _named(self, flat: I64) -> tuple[I32, I64]:
        source = np.searchsorted(self._borders, flat, side="right") - 1
        return source.astype(np.int32), flat - self._borders[source]


@dataclass(frozen=True)
class GradedSamples(Adaptation):
    """Easy samples first, by difficulties that may change (``Rescore``).

    Attributes:
        spec: Difficulty of samples, and the pace at which they come in.
        later: Difficulties that the events of a state may name.
    """

    spec: CurriculumSpec
    later: tuple[Levels, ...] = field(default=(), compare=False, repr=False)

    key: ClassVar[str] = "curriculum"
    words: ClassVar[str] = "scores or pace of the curriculum (fingerprint)"
    described: ClassVar[str] = "with a curriculum"
    gapless: ClassVar[bool] = True

    def order(self, plan: PlanView) -> Graded:
        batch, passes = (plan.global_batch_size, plan.drop_last), (plan.shuffle, plan.window_samples)
        rescored = [(e.position, e.levels) for e in _rescored(plan)]
        return Graded(plan.lengths, self.spec, plan.seed, batch, passes, rescored)

    def to_dict(self, *, whole: bool = False) -> dict[str, Any]:
        return self.spec.to_dict(whole=whole)

    @classmethod
    def read(cls, fields: Fields) -> GradedSamples:
        return cls(CurriculumSpec.read(fields.record(cls.key)))

    def summary(self) -> str:
        return fingerprint(self.to_dict())

    def check(self, plan: PlanView) -> None:
        """Refuse weights beside it."""
        if plan.mixture is not None:
            raise PlanError(
                "a plan has weights or a curriculum, not both: each says what is drawn when. Leave one out."
            )

    def reached(self, order: Order, position: int) -> list[int] | None:
        return order.reached(position) if isinstance(order, Graded) else None

    def planned(self, order: Order, starts: I64, sizes: I64) -> NDArray[np.float64] | None:
        return order.planned(starts, sizes) if isinstance(order, Graded) else None

    def kept(self, past: Sequence[Event], order: Order, clock: Clock, at: Location) -> tuple[AdaptedBase, int] | None:
        """Return the difficulties that were given last, and since which step."""
        found = [_scores_of(event) for event in past]
        last = next((scores for scores in reversed(found) if scores is not None), None)
        return None if last is None else (ScoresBase(last), last.step)

    def resolved(self, event: Event) -> Event:
        """Return an event with the difficulties that it names, where they are known."""
        if isinstance(event, Rescore):
            return replace(event, levels=event.levels.known(self.later))
        if isinstance(event, ResumeBase) and (scores := _scores_of(event)) is not None:
            return replace(event, adapted=ScoresBase(replace(scores, levels=scores.levels.known(self.later))))
        return event

    def rescoring(self, plan: PlanView, step: int, levels: Levels, reason: str = "") -> Rescore | None:
        """Return the event that gives samples other difficulties from a step on, the first of an epoch.

        None where they have them already.
        """
        at = plan.clock.locate(step)
        if at.epoch_step:
            raise PlanError(f"step {step} is inside epoch {at.epoch}: scores change where an epoch begins.")
        rescored = _rescored(plan)
        in_force = rescored[-1].levels if rescored else self.spec.levels
        return None if in_force == levels else Rescore(step, at.position, levels, reason)


def _scores_of(event: Event) -> Rescore | None:
    """Return the difficulties that an event gives, or that a base keeps."""
    kept = event.adapted if isinstance(event, ResumeBase) else None
    return event if isinstance(event, Rescore) else kept.scores if isinstance(kept, ScoresBase) else None


def _rescored(plan: PlanView) -> list[Rescore]:
    """Return the new scores since a plan was made, as far as they are known."""
    base = None if plan.base is None else _scores_of(plan.base)
    return [*([] if base is None else [base]), *(e for e in plan.events if isinstance(e, Rescore))]
