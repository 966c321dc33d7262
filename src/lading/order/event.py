"""What may change a plan while it runs; everything before an event stays as it was.

Reweight   from a position on, the mixture has other weights
Rebatch    from a step on, global batches (or chunks) have another size
Block      from a step on, some samples are replaced by substitutes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from lading.errors import PlanError


@dataclass(frozen=True)
class Reweight:
    """New weights of the mixture.

    Attributes:
        step: First step that was not yet handed out when the weights were changed.
        position: First position that uses them; a block boundary.
        weights: Integers that sum to 2**31, one per dataset.
        reason: Who asked for it.
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
    """

    kind: ClassVar[str] = "rebatch"
    step: int
    epoch: int
    offset: int
    global_batch_size: int
    chunk_batches: int | None = None


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


Event = Reweight | Rebatch | Block

_KINDS: dict[str, Callable[..., Event]] = {cls.kind: cls for cls in (Reweight, Rebatch, Block)}


def event_to_dict(event: Event) -> dict[str, Any]:
    """Return an event as JSON-able fields."""
    fields = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(event).items()}
    return {"kind": event.kind, **fields}


def event_from_dict(fields: Mapping[str, Any]) -> Event:
    """Rebuild an event; undoes ``event_to_dict``."""
    kind = fields.get("kind")
    if kind not in _KINDS:
        raise PlanError(
            f"a plan event has kind {kind!r}: expected one of {', '.join(_KINDS)}. "
            "The state or ledger may come from a newer Lading; update this one."
        )
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k != "kind"}
    try:
        return _KINDS[kind](**values)
    except TypeError as error:
        raise PlanError(f"a {kind} event has the wrong fields: {sorted(values)}. The state may be damaged.") from error
