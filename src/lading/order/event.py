"""What may change a plan while it runs; everything before an event stays as it was.

Reweight     from a step on, the mixture has other weights
Rebatch      from a step on, global batches (or chunks) have another size
Block        from a step on, some samples are replaced by substitutes
ResumeBase   stands for all events that acted before a step: what resuming needs, and no more
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from lading.errors import PlanError
from lading.order.fields import LIMIT, Fields


@dataclass(frozen=True)
class Reweight:
    """New weights of the mixture.

    Attributes:
        step: First step that uses them: ``lookahead_steps`` + 1 after the step before which nothing was requested.
        position: Position of that step when the event was made; after a later rebatch the event acts at the first
            step whose first sample is at or after it.
        weights: Integers that sum to 2**31, one per dataset.
        reason: Who requested it.
    """

    kind: ClassVar[str] = "reweight"
    step: int
    position: int
    weights: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True)
class Rebatch:
    """Another global batch size or chunk size, after a resume.

    Attributes:
        step: First step of the new size.
        epoch: Its epoch.
        offset: Samples of that epoch already delivered.
        global_batch_size: The new size.
        chunk_batches: The new chunk size.
        later: (step, size) of the changes that are still planned after it; they replace the plan's.
    """

    kind: ClassVar[str] = "rebatch"
    step: int
    epoch: int
    offset: int
    global_batch_size: int
    chunk_batches: int | None = None
    later: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Block:
    """Samples that are no longer to be used; each is replaced by a substitute of its dataset.

    Attributes:
        step: First step at which they are replaced.
        dataset: Number of their dataset.
        indices: Their indices in it.
        reason: Why.
    """

    kind: ClassVar[str] = "block"
    step: int
    dataset: int
    indices: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True)
class Pace:
    """Batch and chunk size from a step on, and where that step is.

    Attributes:
        step: First step of the size.
        epoch: Its epoch.
        epoch_step: Its number inside the epoch.
        offset: Samples of the epoch before it.
        position: Position of its first sample.
        batch: Samples of a global batch.
        chunk_batches: Batches of a chunk, or None.
        chunk: Number of the chunk that begins with it.
        later: (step, size) of the changes planned after it.
    """

    step: int
    epoch: int
    epoch_step: int
    offset: int
    position: int
    batch: int
    chunk_batches: int | None
    chunk: int
    later: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class StageBase:
    """The stage of a mixture that is in force, and what had been drawn before it.

    Attributes:
        start: Its first position.
        weights: Integers that sum to 2**31, one per dataset.
        drawn: Draws of each dataset before the start.
        residuals: Planned minus drawn before the start, in draws times 2**31.
    """

    start: int
    weights: tuple[int, ...]
    drawn: tuple[int, ...]
    residuals: tuple[int, ...]


@dataclass(frozen=True)
class ResumeBase:
    """What a plan keeps of all events before a step.

    Attributes:
        step: The step to resume at.
        position: Its position; planned stages at or before it have acted.
        first_step: The first step the plan still answers for; the ledger has those before.
        pace: Sizes in force, where they are no longer the plan's.
        stage: Weights in force, where they are no longer the plan's.
        blocked: (dataset, indices) of the samples that are blocked.
    """

    kind: ClassVar[str] = "base"
    step: int
    position: int
    first_step: int
    pace: Pace | None = None
    stage: StageBase | None = None
    blocked: tuple[tuple[int, tuple[int, ...]], ...] = ()


Event = Reweight | Rebatch | Block | ResumeBase


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as JSON-able fields."""
    fields = asdict(event)
    if isinstance(event, Rebatch) and not event.later:
        del fields["later"]
    if isinstance(event, ResumeBase):
        fields["blocked"] = {str(dataset): _gaps(indices) for dataset, indices in event.blocked}
    return {"kind": event.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()}}


def event_from_dict(fields: Mapping[str, Any]) -> Event:
    """Rebuild an event; undoes ``event_to_dict``."""
    kind = Fields(fields, "a plan event").value.get("kind")
    if not isinstance(kind, str) or kind not in _READERS:
        raise PlanError(
            f"a plan event has kind {kind!r}: expected one of {', '.join(_READERS)}. "
            "The state or ledger may come from a newer Lading; update this one."
        )
    return _READERS[kind](Fields(fields, f"a {kind} event"))


def _reweight(fields: Fields) -> Reweight:
    fields.only("kind", "step", "position", "weights", "reason")
    return Reweight(
        fields.integer("step"), fields.integer("position"), fields.integers("weights"), fields.text("reason", "")
    )


def _rebatch(fields: Fields) -> Rebatch:
    fields.only("kind", "step", "epoch", "offset", "global_batch_size", "chunk_batches", "later")
    place = fields.integer("step"), fields.integer("epoch"), fields.integer("offset")
    sizes = fields.integer("global_batch_size", 1), fields.optional_integer("chunk_batches", 1)
    return Rebatch(*place, *sizes, fields.pairs("later"))


def _block(fields: Fields) -> Block:
    fields.only("kind", "step", "dataset", "indices", "reason")
    return Block(
        fields.integer("step"), fields.integer("dataset"), fields.integers("indices"), fields.text("reason", "")
    )


def _base(fields: Fields) -> ResumeBase:
    fields.only("kind", "step", "position", "first_step", "pace", "stage", "blocked")
    pace, stage = fields.inner("pace", "the pace of a base"), fields.inner("stage", "the stage of a base")
    blocked = fields.inner("blocked", "the blocked samples of a base")
    return ResumeBase(
        step=fields.integer("step"),
        position=fields.integer("position"),
        first_step=fields.integer("first_step"),
        pace=None if pace is None else _pace(pace),
        stage=None if stage is None else _stage(stage),
        blocked=() if blocked is None else tuple(_blocked(blocked, name) for name in blocked.value),
    )


def _pace(fields: Fields) -> Pace:
    return Pace(
        *(fields.integer(name) for name in ("step", "epoch", "epoch_step", "offset", "position")),
        batch=fields.integer("batch", 1),
        chunk_batches=fields.optional_integer("chunk_batches", 1),
        chunk=fields.integer("chunk"),
        later=fields.pairs("later"),
    )


def _stage(fields: Fields) -> StageBase:
    columns = fields.integers("weights"), fields.integers("drawn"), fields.integers("residuals", -LIMIT)
    if len({len(column) for column in columns}) != 1:
        raise fields.wrong("weights", "as many as drawn and residuals")
    return StageBase(fields.integer("start"), *columns)


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _gaps(indices: tuple[int, ...]) -> str:
    """Return ascending indices as gaps in base 36: about 7 bytes each, however long the dataset."""
    return " ".join(_base36(b - a) for a, b in itertools.pairwise([0, *sorted(indices)]))


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits


def _blocked(fields: Fields, dataset: Any) -> tuple[int, tuple[int, ...]]:
    text = fields.text(dataset)
    try:
        gaps = [int(gap, 36) for gap in text.split()]
        number = int(dataset)
    except (TypeError, ValueError):
        raise fields.wrong(dataset, "gaps in base 36, under the number of a dataset") from None
    if number < 0 or any(gap < 0 for gap in gaps) or sum(gaps) >= LIMIT:
        raise fields.wrong(dataset, "gaps of 0 or more, under the number of a dataset")
    return number, tuple(itertools.accumulate(gaps))


_READERS: dict[str, Callable[[Fields], Event]] = {
    Reweight.kind: _reweight,
    Rebatch.kind: _rebatch,
    Block.kind: _block,
    ResumeBase.kind: _base,
}
