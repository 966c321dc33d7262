"""What may change a plan while it runs; everything before an event stays as it was.

Reweight     from a step on, the mixture has other weights
Rebatch      from a step on, global batches (or chunks) have another size
Block        from a step on, some samples are replaced by substitutes
Mask         from a step on, the tokens of some documents are padding; the order stays as it is
ResumeBase   stands for all events that acted before a step: what resuming needs, and no more

Orders that adapt have events of their own, see ``lading.kits.adaptive``.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from lading.errors import PlanError
from lading.order.decided import BASES, EVENTS, AdaptedBase, AdaptiveEvent, opened, read_base
from lading.runtime.fields import (
    COUNT,
    REASON,
    SIZE,
    Fields,
    FieldTable,
    Origin,
    given,
    record_of,
    row_of,
    tuple_of,
)

ORIGIN = Origin("a plan event", PlanError, "It may be damaged, or come from a newer Lading.")


@dataclass(frozen=True)
class Reweight:
    """New weights of the mixture.

    Attributes:
        step: First step that uses them.
        position: Position of that step when the event was made; after a later rebatch the event acts at the first
            step whose first sample is at or after it.
        weights: Integers that sum to 2**31, one per dataset.
        reason: Who requested it.
    """

    kind: ClassVar[str] = "reweight"
    rereads: ClassVar[bool] = True
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
        reason: Who requested it, where a policy did.
    """

    kind: ClassVar[str] = "rebatch"
    rereads: ClassVar[bool] = False
    step: int
    epoch: int
    offset: int
    global_batch_size: int
    chunk_batches: int | None = None
    later: tuple[tuple[int, int], ...] = ()
    reason: str = ""


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
    rereads: ClassVar[bool] = True
    step: int
    dataset: int
    indices: tuple[int, ...]
    reason: str = ""


@dataclass(frozen=True)
class Mask:
    """Documents whose tokens are no longer to be used: padding takes their places in the rows that hold them.

    Attributes:
        step: First step at which they are masked.
        dataset: Number of their dataset.
        documents: Their numbers in its token store.
        reason: Why.
    """

    kind: ClassVar[str] = "mask"
    rereads: ClassVar[bool] = True
    step: int
    dataset: int
    documents: tuple[int, ...]
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
        later_chunks: (chunk, batches) of the chunk sizes planned after it.
        pass_chunks: Chunks of its epoch before it.
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
    later_chunks: tuple[tuple[int, int], ...] = ()
    pass_chunks: int = 0


@dataclass(frozen=True)
class StageBase:
    """The stage of a mixture that is in force, and what had been drawn before it: a ``Stage`` as JSON has it."""

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
        adapted: What an order that adapts keeps.
        masked: (dataset, documents) of the documents that are masked.
    """

    kind: ClassVar[str] = "base"
    rereads: ClassVar[bool] = True
    step: int
    position: int
    first_step: int
    pace: Pace | None = None
    stage: StageBase | None = None
    blocked: tuple[tuple[int, tuple[int, ...]], ...] = ()
    adapted: AdaptedBase | None = None
    masked: tuple[tuple[int, tuple[int, ...]], ...] = ()


Event = Reweight | Rebatch | Block | Mask | AdaptiveEvent | ResumeBase


def event_to_dict(event: Event, *, whole: bool = False) -> dict[str, Any]:
    """Return an event as JSON-able fields; ``whole``: with what states only name."""
    if isinstance(event, AdaptiveEvent):
        fields = event.to_dict(whole=whole)
    elif isinstance(event, ResumeBase):
        fields = _base_to_dict(event, whole=whole)
    else:
        unused = ("later", "reason") if isinstance(event, Rebatch) else ()
        fields = {n: list(v) if isinstance(v, tuple) else v for n, v in vars(event).items() if v or n not in unused}
    return {"kind": event.kind, **fields}


def _base_to_dict(base: ResumeBase, *, whole: bool) -> dict[str, Any]:
    pace = None if base.pace is None else vars(base.pace)
    unused = ("later_chunks", "pass_chunks")
    masked = {str(dataset): _gaps(documents) for dataset, documents in base.masked}
    return {
        "step": base.step,
        "position": base.position,
        "first_step": base.first_step,
        "pace": pace and {n: value for n, value in pace.items() if value or n not in unused},
        "stage": base.stage and dict(vars(base.stage)),
        "blocked": {str(dataset): _gaps(indices) for dataset, indices in base.blocked},
        **({"masked": masked} if masked else {}),
        **({} if base.adapted is None else base.adapted.to_dict(whole=whole)),
    }


def event_from_dict(fields: Any, place: str = "") -> Event:
    """Rebuild an event; undoes ``event_to_dict``. ``place``: where it is, for errors."""
    return read_event(Fields(fields, ORIGIN, place))


def read_event(fields: Fields) -> Event:
    kind = fields.text("kind", choices=(*_TABLES, *EVENTS, ResumeBase.kind))
    if kind == ResumeBase.kind:
        return ResumeBase(**fields.each(_BASE, "kind", *BASES), adapted=read_base(fields))
    if kind in EVENTS:
        decided: AdaptiveEvent = opened(EVENTS[kind]).read(fields)
        return decided
    make, table = _TABLES[kind]
    found: Event = make(**fields.each(table, "kind"))
    return found


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_GAPS = re.compile("[0-9a-z]{1,12}( [0-9a-z]{1,12})*")


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
    text = fields.text(dataset, longest=1 << 26)
    if not (isinstance(dataset, str) and dataset.isdecimal() and len(dataset) < 9 and _GAPS.fullmatch(text)):
        fields.refuse(dataset, "gaps in base 36 under the number of a dataset")
    return int(dataset), tuple(itertools.accumulate(int(gap, 36) for gap in text.split()))


def _blocklist(fields: Fields, name: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    record = fields.record(name)
    return tuple(_blocked(record, dataset) for dataset in record)


def _stage(fields: Fields, name: str) -> StageBase:
    stage = StageBase(**fields.record(name).each(_STAGE))
    for column in ("drawn", "residuals"):
        if len(getattr(stage, column)) != len(stage.weights):
            fields.record(name).refuse(column, f"{len(stage.weights)} integers, as many as weights")
    return stage


_NUMBERS = partial(Fields.integers, low=0)
PAIRS = given(tuple_of(row_of(COUNT, SIZE)), ())  # of a step and a size
_PACE: FieldTable = {
    **dict.fromkeys(("step", "epoch", "epoch_step", "offset", "position", "chunk"), COUNT),
    "batch": SIZE,
    "chunk_batches": given(SIZE),
    "later": PAIRS,
    "later_chunks": PAIRS,
    "pass_chunks": given(COUNT, 0),
}
_STAGE: FieldTable = {
    "start": COUNT,
    "weights": partial(Fields.integers, low=0, least=1),
    "drawn": _NUMBERS,
    "residuals": Fields.integers,
}
_BASE: FieldTable = {
    **dict.fromkeys(("step", "position", "first_step"), COUNT),
    "pace": given(record_of(Pace, _PACE)),
    "stage": given(_stage),
    "blocked": given(_blocklist, ()),
    "masked": given(_blocklist, ()),
}
_TABLES: dict[str, tuple[type[Any], FieldTable]] = {
    Reweight.kind: (Reweight, {"step": COUNT, "position": COUNT, "weights": _NUMBERS, "reason": REASON}),
    Rebatch.kind: (
        Rebatch,
        {
            **dict.fromkeys(("step", "epoch", "offset"), COUNT),
            "global_batch_size": SIZE,
            "chunk_batches": given(SIZE),
            "later": PAIRS,
            "reason": REASON,
        },
    ),
    Block.kind: (Block, {"step": COUNT, "dataset": COUNT, "indices": _NUMBERS, "reason": REASON}),
    Mask.kind: (
        Mask,
        {"step": COUNT, "dataset": COUNT, "documents": partial(Fields.integers, low=0, least=1), "reason": REASON},
    ),
}
