"""What a loader asks of what adapts its order; a new kind of curriculum is one such class and an ``Adaptation``.

    mixture=Curriculum(...)             an ``Adapting``: the adaptation of the plan, and what may change it later
    chunk_batches=Chunks(choose=...)    an adaptation that has nothing to be told

The kinds are a kit's (``lading.kits.adaptive``); ``CURRICULUM`` says where configurations find theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lading.errors import ConfigError, LoaderError
from lading.order.decided import AdaptiveEvent, opened

if TYPE_CHECKING:
    from lading.loader.note import Observed
    from lading.order.adaptation import Adaptation
    from lading.order.plan import Plan
    from lading.source.reader import Reader

CURRICULUM = "lading.kits.adaptive.curriculum:Curriculum"


class Asked(Protocol):
    """What else was asked of the loader."""

    @property
    def sources(self) -> Mapping[str, Any]: ...
    @property
    def drop_last(self) -> bool: ...
    @property
    def batch_schedule(self) -> Sequence[Any] | None: ...


class Adapting(ABC):
    """What is given as ``mixture=`` and adapts the order."""

    @property
    def lookahead_steps(self) -> int | None:
        """Most steps on their way, as the user gave it."""
        return None

    @abstractmethod
    def adaptation(self, request: Asked, readers: Sequence[Reader], batch: int) -> Adaptation:
        """Return how the plan of a loader adapts; ``batch``: samples of a step that the run begins with."""

    def resumable(self, request: Asked, readers: Sequence[Reader], plan: Plan) -> Plan:
        """Return a plan that knows what the events of a state may only name."""
        return plan

    def rescored(
        self, engine: Observed, request: Asked, readers: Sequence[Reader], scores: Any, reason: str
    ) -> AdaptiveEvent | None:
        """Give samples other difficulties from the next epoch on; return the event, None where nothing changes."""
        raise LoaderError(f"a {type(self).__name__} has no scores that could change. Pass mixture=Curriculum(scores).")


def curriculum(given: Any) -> Adapting:
    """Return the curriculum that a configuration describes: by its arguments, or by its scores alone."""
    if isinstance(given, Adapting):
        return given
    try:
        made: Adapting = opened(CURRICULUM)(**given) if isinstance(given, Mapping) else opened(CURRICULUM)(given)
    except TypeError as error:
        known = "scores, start, until, pacing and power"
        raise ConfigError(f"curriculum has {', '.join(map(str, given))}: expected {known} ({error}).") from error
    return made
