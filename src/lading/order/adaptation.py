"""What a plan asks of an order that adapts. A new kind is one class, and a line in ``decided.KINDS``.

order        positions to samples and back
to_dict      what the plan's JSON keeps of it, under ``key``
kept         what a state keeps of its past
reached      how many different samples the order has shown, and ``planned``, how many were to be expected

What it decides while the run goes on is in ``decided``: events, and what resuming needs of them. Chunks of another size
(``resizing``) are decided without a kind of their own. The kinds there are: ``lading.kits.adaptive``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from lading.order.event import Event, Rebatch, ResumeBase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lading.order.clock import Clock, Location
    from lading.order.dataset import Parts, PlannedDataset
    from lading.order.decided import AdaptedBase
    from lading.order.mixture.spec import MixtureSpec
    from lading.order.sample_weights import Tables, Weighted
    from lading.order.shuffle import Order
    from lading.order.substitute import Blocklist
    from lading.runtime.fields import Fields


class PlanView(Protocol):
    """What a plan is to what it is put together from: its fields, and what was worked out of them."""

    @property
    def datasets(self) -> tuple[PlannedDataset, ...]: ...

    @property
    def lengths(self) -> tuple[int, ...]: ...
    @property
    def seed(self) -> int: ...
    @property
    def shuffle(self) -> str: ...
    @property
    def window_samples(self) -> int: ...
    @property
    def global_batch_size(self) -> int: ...
    @property
    def drop_last(self) -> bool: ...
    @property
    def chunk_batches(self) -> int | None: ...
    @property
    def mixture(self) -> MixtureSpec | None: ...
    @property
    def batch_schedule(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def chunk_schedule(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def events(self) -> tuple[Event, ...]: ...
    @property
    def base(self) -> ResumeBase | None: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def adaptation(self) -> Adaptation | None: ...
    @property
    def lookahead_steps(self) -> int: ...
    @property
    def blocked(self) -> tuple[tuple[str, tuple[int, ...]], ...]: ...
    @property
    def sample_weights(self) -> Weighted: ...
    @property
    def masked(self) -> tuple[tuple[str, tuple[int, ...]], ...]: ...
    @property
    def weight_tables(self) -> Tables: ...
    @property
    def parts(self) -> Parts: ...
    @property
    def order(self) -> Order: ...
    @property
    def blocklist(self) -> Blocklist | None: ...
    @property
    def source_names(self) -> tuple[str, ...]: ...
    def locate(self, step: int) -> Location: ...
    def counts(self, step: int) -> list[int]: ...
    def steps_of_row(
        self, source: int, row: int, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
    def with_events(self, events: Sequence[Event], /) -> Self: ...


P = TypeVar("P", bound=PlanView)


class Adaptation(ABC):
    """How the order of a plan adapts."""

    key: ClassVar[str]  # in the plan's JSON
    words: ClassVar[str]  # what differs, for errors
    described: ClassVar[str] = ""  # for people
    gapless: ClassVar[bool] = False  # whether draws run on over epochs, as those of a mixture do
    by_chance: ClassVar[bool] = True  # whether chance says, in a full shuffle, what a step holds of each dataset

    @abstractmethod
    def order(self, plan: PlanView) -> Order:
        """Return the order of a plan."""

    @abstractmethod
    def to_dict(self, *, whole: bool = False) -> Any:
        """Return what a plan's JSON keeps; ``whole``: with what a fingerprint only names."""

    @classmethod
    @abstractmethod
    def read(cls, fields: Fields) -> Adaptation:
        """Rebuild it from the checked fields of a plan that has the key."""

    def summary(self) -> Any:
        """Return what a state says of it."""
        return self.to_dict()

    def check(self, plan: PlanView) -> None:  # noqa: B027  # most kinds have nothing to refuse
        """Refuse fields of a plan that do not go with it; its clock and order are not made yet."""

    def extended(self, order: Order, event: Event) -> Order | None:
        """Return the order after one more event, where that costs less than to make it anew."""
        return None

    def reached(self, order: Order, position: int) -> list[int] | None:
        """Return how many different samples of each source lie before a position; None where each epoch has all."""
        return None

    def planned(self, order: Order, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Return the samples of each source to be expected in some steps; None where the lengths say it."""
        return None

    def undecided_from(self, order: Order, step: int) -> int | None:
        """Return the first step at or after a step that is not decided yet; None where all are."""
        return None

    def kept(self, past: Sequence[Event], order: Order, clock: Clock, at: Location) -> tuple[AdaptedBase, int] | None:
        """Return what a state keeps of events that have acted, and the first step it knows."""
        return None

    def resolved(self, event: Event) -> Event:
        """Return an event of a state with what the state only names."""
        return event

    def check_resize(self, at: Location) -> None:  # noqa: B027
        """Refuse chunks of another size from a step on, where they cannot change."""

    def resized(self, plan: P, step: int) -> P:
        """Return a plan that may be given other sizes at a step; refuse where sizes cannot change there."""
        return plan


def resizing(plan: PlanView, step: int, chunk_batches: int, reason: str = "") -> Rebatch | None:
    """Return the event that gives chunks another size from a step on; None where they have it already."""
    at, pace = plan.clock.locate(step), plan.clock.pace_at(step)
    if plan.adaptation is not None:
        plan.adaptation.check_resize(at)
    if pace.chunk_batches == chunk_batches:
        return None
    return Rebatch(step, at.epoch, at.offset, pace.batch, chunk_batches, pace.later, reason)
