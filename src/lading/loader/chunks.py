"""What the user asks of chunks: one size, sizes as planned, sizes and chunks chosen by policies.

2000                                              one size
[[0, 500], [10, 2000]]                            500 batches from chunk 0 on, 2000 from chunk 10 on
{"first": 500, "double_every": 10, "most": 4000}  doubled every 10 chunks
Chunks(500, resize=GrowWhileImproving(), choose=LearningValue())

The policies there are, and what asks them, are a kit's (``lading.kits.adaptive``): it is opened where one is given. As
long as none is, ``ChunkEnds`` only has validations written down.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lading.errors import LoaderError, PlanError
from lading.identity import Bill
from lading.loader.note import Observed, Observer, Trackers
from lading.loader.policy import ChoicePolicy, Policy, SizePolicy
from lading.order.decided import opened
from lading.order.plan import Plan
from lading.runtime.fields import is_whole

RUNNER = "lading.kits.adaptive.runner:ChunkRunner"
POLICIES = {  # the policy that a configuration describes, by the argument of ``Chunks``
    "resize": "lading.kits.adaptive.policy.chunks:resize_of",
    "choose": "lading.kits.adaptive.policy.chunks:choice_of",
}
MAX_SIZES = 32
_WAY_OUT = "Expected batches of a chunk (2000), [[0, 500], [10, 2000]], or {first: 500, double_every: 10, most: 4000}."


@dataclass(frozen=True)
class Chunks:
    """How a run is cut into chunks; for ``chunk_batches=``, ``chunk_size=``, ``train_chunk_size`` ...

    Attributes:
        size: Batches of a chunk; pairs (first chunk, batches); or ``{"first": ..., "double_every": ..., "most": ...}``.
        resize: Chooses the size after each validation, such as ``GrowWhileImproving``; None: as planned. Each loader
            needs a policy of its own.
        choose: Chooses the next chunk of a pass, such as ``LearningValue``; None: in order.
        ahead: Chunks that are chosen before the running one has ended, so that the next can be read meanwhile.
    """

    size: Any
    resize: SizePolicy | None = None
    choose: ChoicePolicy | None = None
    ahead: int = 1

    def __post_init__(self) -> None:
        planned = sizes_of(self.size)
        object.__setattr__(self, "resize", _checked("resize", _made("resize", self.resize), Policy))
        object.__setattr__(self, "choose", _checked("choose", _made("choose", self.choose), ChoicePolicy))
        if not is_whole(self.ahead, 0):
            raise PlanError(f"ahead={self.ahead!r}: expected an integer from 0 up.")
        if len(planned) > 1 and self.adapts:
            raise PlanError(
                f"chunk sizes {planned[:3]} are planned and a policy was given, too: expected one of them. Pass the "
                "first size alone."
            )

    @property
    def schedule(self) -> tuple[tuple[int, int], ...]:
        """(first chunk, batches of a chunk), the first from chunk 0 on."""
        return sizes_of(self.size)

    @property
    def adapts(self) -> bool:
        """Whether sizes or chunks are chosen while the run goes on."""
        return self.resize is not None or self.choose is not None

    @property
    def first(self) -> int:
        """Batches of the first chunk."""
        return self.schedule[0][1]

    @classmethod
    def of(cls, given: Any) -> Chunks | None:
        """Return what is meant by a size, a schedule, a mapping from a configuration file, or None."""
        if given is None or isinstance(given, Chunks):
            return given
        if isinstance(given, Mapping) and "size" in given:
            unknown = [str(key) for key in given if key not in ("size", "resize", "choose", "ahead")]
            if unknown:
                raise PlanError(f"chunks have {', '.join(unknown)}: expected size, resize, choose and ahead.")
            ahead = {} if given.get("ahead") is None else {"ahead": given["ahead"]}
            return cls(given["size"], given.get("resize"), given.get("choose"), **ahead)
        return cls(given)

    def observer(self) -> Observer:
        """Return what a loader tells of its validations."""
        made: Observer = opened(RUNNER)(self) if self.adapts else ChunkEnds()
        return made


class ChunkEnds:
    """Has validations between chunks written down: an ``Observer``.

    Attributes:
        last_step: The end of the chunk that policies heard of last; no chunk is validated twice.
    """

    resizes = False

    def __init__(self) -> None:
        self.last_step = -1

    def begin(self, engine: Observed, step: int) -> None:
        """Do nothing: what comes is planned."""

    def amended(self, engine: Observed, bill: Bill) -> Bill:
        """Return the bill as it is: what comes is planned."""
        return bill

    def noted(self, engine: Observed) -> None:
        """Do nothing: chunks are decided where one ends, see ``validated``."""

    def validated(self, engine: Observed, found: Mapping[str, Any], trackers: Trackers) -> None:
        """Record a validation."""
        if engine.step > self.last_step:
            trackers.validated(engine.step, found)

    def state(self, plan: Plan, step: int) -> dict[str, Any]:
        """Return nothing: nobody decides."""
        return {}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Remember where the policies of the saved run were, if it had any."""
        self.last_step = int(saved.get("chunks", {}).get("last_step", -1))


def measured(metric: Any, loss: Any, on: Any) -> dict[str, Any]:
    """Return what a validation found; refuse what is no number, and what it was made on if that is no mapping."""
    if not (on is None or isinstance(on, Mapping)):
        raise LoaderError(f"on={on!r}: expected a mapping, such as last_chunk() of the validation loader, or None.")
    return {"metric": _measured("metric", metric), "loss": _measured("loss", loss), "on": dict(on or {})}


def _measured(name: str, value: Any) -> float | None:
    """Return what was measured as a number; None where nothing was, or nothing sensible (NaN, infinity)."""
    try:
        found = None if value is None or isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        found = None
    if found is None and value is not None:
        raise LoaderError(f"{name}={value!r}: expected a number, or None where nothing was measured.")
    return found if found is not None and math.isfinite(found) else None


def sizes_of(size: Any) -> tuple[tuple[int, int], ...]:
    """Return (first chunk, batches of a chunk) of a size as it was given.

    >>> sizes_of(500), sizes_of([[0, 500], [10, 2000]])
    (((0, 500),), ((0, 500), (10, 2000)))
    >>> sizes_of({"first": 500, "double_every": 10, "most": 1500})
    ((0, 500), (10, 1000), (20, 1500))
    """
    if is_whole(size, 1):
        return ((0, int(size)),)
    if isinstance(size, Mapping):
        return _doubled(size)
    if isinstance(size, str) or not isinstance(size, Sequence) or not size:
        raise PlanError(f"chunk_batches is {size!r}: expected an integer of at least 1. {_WAY_OUT}")
    pairs = [tuple(pair) if isinstance(pair, Sequence) and len(pair) == 2 else None for pair in size]
    if not all(pair is not None and is_whole(pair[0], 0) and is_whole(pair[1], 1) for pair in pairs):
        raise PlanError(f"chunk sizes are {size!r}: found what is no pair (first chunk, batches). {_WAY_OUT}")
    found = tuple((int(pair[0]), int(pair[1])) for pair in pairs if pair is not None)
    rising = found[0][0] == 0 and all(a[0] < b[0] for a, b in itertools.pairwise(found))
    if not rising or len(found) > MAX_SIZES:
        raise PlanError(
            f"chunk sizes are {size!r}: expected at most {MAX_SIZES}, in order, from chunk 0 on. {_WAY_OUT}"
        )
    return tuple(pair for i, pair in enumerate(found) if i == 0 or pair[1] != found[i - 1][1])


def _made(name: str, given: Any) -> Any:
    """Return the policy that a configuration file describes; what is one already is returned as it is."""
    return opened(POLICIES[name])(given) if isinstance(given, str | Mapping) else given


def _checked(name: str, policy: Any, kind: type) -> Any:
    """Return a policy of chunks, or None; refuse what is no policy."""
    if policy is None or (isinstance(policy, kind) and not isinstance(policy, type)):
        return policy
    parts = [part for part in ("__call__", "observe", "state_dict", "load_state_dict") if hasattr(kind, part)]
    raise PlanError(
        f"{name}={policy!r}: expected an object with {', '.join(parts)}, such as lading.LearningValue() or "
        "lading.GrowWhileImproving(), or its name."
    )


def _doubled(size: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    names = ("first", "double_every", "most")
    if set(size) != set(names) or not all(is_whole(size[name], 1) for name in names) or size["most"] < size["first"]:
        raise PlanError(f"chunk sizes are {dict(size)!r}: expected first, double_every and most. {_WAY_OUT}")
    found, batches = [(0, int(size["first"]))], int(size["first"])
    while batches < size["most"]:
        batches = min(2 * batches, int(size["most"]))
        found.append((found[-1][0] + int(size["double_every"]), batches))
    if len(found) > MAX_SIZES:
        raise PlanError(f"chunk sizes double {len(found)} times: expected at most {MAX_SIZES} sizes.")
    return tuple(found)
