"""A run whose chunks are chosen: which chunk of the data comes next is decided while it runs.

    the data      │ chunk 0 │ chunk 1 │ chunk 2 │ chunk 3 │ rest │     neighbours; the same in every pass
    a pass        │    2    │    0    │    ?    │    ?    │ rest │     chosen one after another, each once

A chunk is a run of neighbours in the data, shuffled inside, differently in each
pass. What is not yet chosen has no bill, and ``where`` leaves it out. What is
too short for a chunk comes last.

``Choose`` is a choice, ``ChosenBase`` what a state keeps of past ones, ``Chosen`` the order, ``ChosenChunks`` what a
plan asks of all this.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError, ResumeError
from lading.identity.hashing import key64, keys64
from lading.order.adaptation import Adaptation, P, PlanView
from lading.order.clock import Clock, Location
from lading.order.decided import AdaptedBase, AdaptiveEvent
from lading.order.event import Event, ResumeBase
from lading.order.shuffle import Order, permute_pass, unpermute_pass
from lading.runtime.fields import COUNT, REASON, Fields, FieldTable, given


@dataclass(frozen=True)
class Choose(AdaptiveEvent):
    """The chunk of the data that comes at a place of a pass.

    Attributes:
        step: First step of the place.
        chosen: Number of the chunk in the data.
        reason: Why.
    """

    kind: ClassVar[str] = "choose"
    table: ClassVar[FieldTable] = {"step": COUNT, "chosen": COUNT, "reason": REASON}
    step: int
    chosen: int
    reason: str = ""

    @property
    def decided(self) -> str:
        """What was decided, in a few words."""
        return f"chunk {self.chosen} of the data"


@dataclass(frozen=True)
class ChosenBase(AdaptedBase):
    """What a plan keeps of the chunks chosen before a step.

    Attributes:
        epoch: The running pass.
        used: Chunks of the data that it has chosen.
        place: Place in the pass of the running chunk.
        chunk: The running chunk; None where it is not chosen yet.
    """

    epoch: int
    used: tuple[int, ...]
    place: int = 0
    chunk: int | None = None

    def to_dict(self, *, whole: bool) -> dict[str, Any]:
        return {"chosen": {**vars(self), "used": _bits(self.used)}}

    @classmethod
    def read(cls, fields: Fields) -> ChosenBase:
        return cls(**fields.each(_CHOSEN))


def _bits(numbers: tuple[int, ...]) -> str:
    """Return a set of numbers as bits in base64: one bit for each number up to the largest."""
    flags = np.zeros(max(numbers, default=-1) + 1, dtype=bool)
    flags[list(numbers)] = True
    return base64.b64encode(np.packbits(flags).tobytes()).decode()


def _from_bits(fields: Fields, name: str) -> tuple[int, ...]:
    text = fields.text(name, longest=1 << 26)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        fields.refuse(name, "bits in base64")
    return tuple(np.flatnonzero(np.unpackbits(np.frombuffer(data, dtype=np.uint8))).tolist())


_CHOSEN: FieldTable = {"epoch": COUNT, "used": _from_bits, "place": COUNT, "chunk": given(COUNT)}


I64 = NDArray[np.int64]
I32 = NDArray[np.int32]


class PassCut(NamedTuple):
    """How a pass is cut.

    Attributes:
        chunks: Chunks of that size; the rest of the pass comes after them.
    """

    epoch: int
    chunk_samples: int
    chunks: int

    @property
    def rest_start(self) -> int:
        """Samples before the rest."""
        return self.chunks * self.chunk_samples


class Chosen:
    """Every sample once an epoch, in chunks that are chosen: the ``Order`` of a plan with ``chosen_chunks``.

    Args:
        base: What is known of the running pass, where the past is not.
    """

    def __init__(
        self,
        lengths: tuple[int, ...],
        seed: int,
        is_shuffled: bool,
        clock: Clock,
        choices: Sequence[Choose] = (),
        base: ChosenBase | None = None,
    ) -> None:
        self._given = lengths, seed, is_shuffled, clock, tuple(choices), base
        self.lengths, self.seed, self.clock = lengths, seed, clock
        self._shuffle = "full" if is_shuffled else "none"
        self.epoch_samples = sum(lengths)
        self._borders = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        self._tables: dict[int, dict[int, int]] = {}  # epoch: {place in the pass: chunk of the data}
        self._used: dict[int, set[int]] = {}
        self.cut = functools.lru_cache(maxsize=1024)(self._cut)
        if base is not None:
            self._used[base.epoch] = set(base.used)
            if base.chunk is not None:
                self._put(base.epoch, base.place, base.chunk)
        for choice in choices:
            self._choose(choice)

    def __reduce__(self) -> tuple[type[Chosen], tuple[object, ...]]:
        return Chosen, self._given

    def extended(self, choice: Choose) -> Chosen:
        """Return the order with one more choice; this one stays as it is."""
        after = Chosen.__new__(Chosen)
        *given, choices, base = self._given
        vars(after).update(vars(self), _given=(*given, (*choices, choice), base))
        after._tables = dict(self._tables)
        after._used = dict(self._used)
        epoch = self.clock.locate(choice.step).epoch
        after._tables[epoch] = dict(self._tables.get(epoch, {}))
        after._used[epoch] = set(self._used.get(epoch, ()))
        after._choose(choice)
        return after

    def remaining(self, epoch: int) -> list[int]:
        """Return the chunks of the data that a pass has not chosen yet, ascending."""
        used = self._used.get(epoch, set())
        return [chunk for chunk in range(self.cut(epoch).chunks) if chunk not in used]

    def chunk_at(self, position: int) -> int | None:
        """Return the chunk of the data at a position: the number after the last for the rest; None: not yet chosen."""
        epoch, offset = divmod(position, self.epoch_samples)
        cut = self.cut(epoch)
        place = offset // cut.chunk_samples
        return cut.chunks if place >= cut.chunks else self._tables.get(epoch, {}).get(place)

    def undecided_from(self, step: int) -> int | None:
        """Return the first step at or after a step that is not yet chosen; None where passes hold no whole chunk."""
        passes_without = 0
        while True:
            at = self.clock.locate(step)
            if self.chunk_at(at.position) is None:
                return step
            if not at.offset:
                passes_without = 0 if self.cut(at.epoch).chunks else passes_without + 1
                if passes_without > 1:  # sizes change once at most after what is decided
                    return None
            assert at.chunk is not None
            step = self.clock.chunk_start(at.chunk + 1)

    def known_at(self, step: int) -> ChosenBase:
        """Return what a state keeps of the choices before a step: those of the running pass."""
        at = self.clock.locate(step)
        cut = self.cut(at.epoch)
        place, table = at.offset // cut.chunk_samples, self._tables.get(at.epoch, {})
        later = {table[p] for p in table if p > place}  # they stay events
        used = self._used.get(at.epoch, set()) - later
        return ChosenBase(at.epoch, tuple(sorted(used)), place, table.get(place))

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        epoch, offset = divmod(start, self.epoch_samples)
        offsets = np.arange(offset, offset + stop - start, dtype=np.int64)
        cut = self.cut(epoch)
        place, inside = np.divmod(offsets, cut.chunk_samples)
        whole = place < cut.chunks
        place, inside = np.where(whole, place, cut.chunks), np.where(whole, inside, offsets - cut.rest_start)
        chunk = self._chunks(cut, place)
        flat = chunk * cut.chunk_samples + permute_pass(self._shuffle, *self._shuffled_by(cut, chunk), inside)
        source = np.searchsorted(self._borders, flat, side="right") - 1
        return source.astype(np.int32), flat - self._borders[source]

    def step_samples(self, start: int, size: int, first: int = 0, stop: int | None = None) -> tuple[I32, I64]:
        return self.samples(start + first, start + (size if stop is None else stop))

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the positions in ``[start, stop)`` that hold a row, in ascending order, as far as they are chosen."""
        flat, found = int(self._borders[dataset]) + index, []
        for epoch in range(start // self.epoch_samples, max(stop - 1, 0) // self.epoch_samples + 1):
            cut = self.cut(epoch)
            chunk = min(flat // cut.chunk_samples, cut.chunks)
            places = {natural: place for place, natural in self._tables.get(epoch, {}).items()}
            place = cut.chunks if chunk == cut.chunks else places.get(chunk)
            if place is not None:
                by = self._shuffled_by(cut, np.array([chunk], dtype=np.int64))
                inside = unpermute_pass(self._shuffle, *by, np.array([flat - chunk * cut.chunk_samples]))
                found.append(epoch * self.epoch_samples + place * cut.chunk_samples + int(inside[0]))
        kept = [position for position in found if start <= position < stop]
        return np.array(kept, dtype=np.int64)

    def counts(self, position: int) -> list[int]:
        epoch, offset = divmod(position, self.epoch_samples)
        counts = epoch * np.array(self.lengths, dtype=np.int64)
        if offset:
            source, _ = self.samples(epoch * self.epoch_samples, position)
            counts = counts + np.bincount(source, minlength=len(self.lengths))
        return [int(n) for n in counts]

    def _cut(self, epoch: int) -> PassCut:
        pace = self.clock.pace_at(max(self.clock.epoch_start(epoch), self.clock.first_step))
        assert pace.chunk_batches is not None
        samples = pace.chunk_batches * pace.batch
        return PassCut(epoch, samples, self.epoch_samples // samples)

    def _choose(self, choice: Choose) -> None:
        at = self.clock.locate(choice.step)
        cut = self.cut(at.epoch)
        place, inside = divmod(at.offset, cut.chunk_samples)
        if inside or place >= cut.chunks or not 0 <= choice.chosen < cut.chunks:
            raise PlanError(
                f"the choice of chunk {choice.chosen} at step {choice.step} fits no chunk: the pass has {cut.chunks} "
                f"chunks of {cut.chunk_samples} samples."
            )
        if choice.chosen in self._used.get(at.epoch, ()) or place in self._tables.get(at.epoch, {}):
            raise PlanError(
                f"the choice of chunk {choice.chosen} at step {choice.step}: expected each chunk, and each place, once "
                f"a pass. It was chosen already in pass {at.epoch}."
            )
        self._put(at.epoch, place, choice.chosen)

    def _put(self, epoch: int, place: int, chunk: int) -> None:
        self._tables.setdefault(epoch, {})[place] = chunk
        self._used.setdefault(epoch, set()).add(chunk)

    def _chunks(self, cut: PassCut, places: I64) -> I64:
        table = self._tables.get(cut.epoch, {})
        wanted = np.unique(places)
        chunks = [cut.chunks if place == cut.chunks else table.get(int(place), -1) for place in wanted.tolist()]
        if min(chunks, default=0) < 0:
            place = int(wanted[chunks.index(-1)])
            raise PlanError(
                f"chunk {place} of pass {cut.epoch} is not chosen yet: what it holds is decided when the chunks before "
                "it have been trained on. Ask for earlier steps, or see plan.undecided_from."
            )
        found: I64 = np.array(chunks, dtype=np.int64)[np.searchsorted(wanted, places)]
        return found

    def _shuffled_by(self, cut: PassCut, chunks: I64) -> tuple[I64, NDArray[np.uint64]]:
        """Return the size of each chunk, and the key of its shuffle."""
        sizes = np.where(chunks == cut.chunks, self.epoch_samples - cut.rest_start, cut.chunk_samples)
        return sizes, keys64(key64(self.seed, "chosen"), np.full(len(chunks), cut.epoch), chunks)


@dataclass(frozen=True)
class ChosenChunks(Adaptation):
    """The chunks of a pass come as they are chosen (``Choose``), not in order."""

    key: ClassVar[str] = "chosen_chunks"
    words: ClassVar[str] = "chosen chunks"
    described: ClassVar[str] = "chosen"
    by_chance: ClassVar[bool] = False

    def order(self, plan: PlanView) -> Chosen:
        choices = [e for e in plan.events if isinstance(e, Choose)]
        known = None if plan.base is None else plan.base.adapted
        before = known if isinstance(known, ChosenBase) else None
        return Chosen(plan.lengths, plan.seed, plan.shuffle != "none", plan.clock, choices, before)

    def to_dict(self, *, whole: bool = False) -> bool:
        """Return that chunks are chosen: there is nothing more to say."""
        return True

    @classmethod
    def read(cls, fields: Fields) -> ChosenChunks:
        fields.flag(cls.key)
        return cls()

    def check(self, plan: PlanView) -> None:
        """Refuse what does not go with chunks of one size, each once a pass."""
        found = {"weights": plan.mixture, "batch_schedule": plan.batch_schedule}
        others = [name for name, value in found.items() if value]
        if plan.chunk_schedule:
            others.append("chunk sizes that change as planned")
        if others or plan.chunk_batches is None:
            what = f"{others[0]} cannot be used" if others else "chunk_batches is missing"
            raise PlanError(f"chunks are chosen and {what}: expected chunks of one size, each once a pass.")

    def extended(self, order: Order, event: Event) -> Order | None:
        return order.extended(event) if isinstance(event, Choose) and isinstance(order, Chosen) else None

    def undecided_from(self, order: Order, step: int) -> int | None:
        return order.undecided_from(step) if isinstance(order, Chosen) else None

    def kept(self, past: Sequence[Event], order: Order, clock: Clock, at: Location) -> tuple[AdaptedBase, int] | None:
        """Return the choices of the running pass, and the first step of the running chunk."""
        assert isinstance(order, Chosen)
        return order.known_at(at.step), clock.chunk_start(at.chunk or 0)

    def check_resize(self, at: Location) -> None:
        if at.offset:
            raise PlanError(f"chunks are chosen, and step {at.step} lies inside a pass: sizes change between passes.")

    def resized(self, plan: P, step: int) -> P:
        """Return a plan without the chunks that were chosen for a pass that begins with a step: it is cut anew."""
        at, now = plan.clock.locate(step), plan.clock.pace_at(step)
        if at.offset:
            raise ResumeError(
                "the saved run chooses its chunks and is inside a pass: another batch or chunk size would cut chunks "
                f"that are chosen already. Keep global_batch_size={now.batch} and chunks of {now.chunk_batches}, or "
                "resume from a checkpoint between two passes."
            )
        kept = [event for event in plan.events if not (isinstance(event, Choose) and event.step >= step)]
        nothing = ChosenBase(at.epoch, ())
        return plan.with_events([replace(e, adapted=nothing) if isinstance(e, ResumeBase) else e for e in kept])
