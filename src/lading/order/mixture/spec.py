"""The weighted mixture as a plan stores it: integers only, nothing left to evaluate.

stages     ((0, (1503238554, 644245094)), (2048000, (1073741824, 1073741824)))
           each acts from the first step whose first sample is at or after its position
stopping   restart          the draws continue over the epochs: one stream for the whole run
           first_exhausted  each epoch is a stream of its own, up to the first repeat
           all_exhausted    each epoch is a stream of its own, until every sample was seen

``MIXTURE_VERSION`` is written into every mixture: another version gives another
order of the same weights.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import Any

from lading.errors import MixtureError, PlanError
from lading.order.mixture.weights import TOTAL
from lading.runtime.fields import COUNT, SIZE, Fields, FieldTable, Origin, row_of, tuple_of

MIXTURE_VERSION = 2
STOPPINGS = ("restart", "first_exhausted", "all_exhausted")
UNITS = ("samples", "tokens")
MAX_STAGES = 4096

Stages = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class MixtureSpec:
    """What a plan keeps of a weighted mixture.

    Attributes:
        epoch_samples: Samples of an epoch.
        stages: (position asked for, integer weights that sum to 2**31), ascending, the first at 0.
        stopping: When an epoch's stream of draws ends.
        unit: What the weights were given in; the integers always weigh samples.
    """

    epoch_samples: int
    stages: Stages
    stopping: str = "restart"
    unit: str = "samples"

    def __post_init__(self) -> None:
        _one_of("stopping", self.stopping, STOPPINGS)
        _one_of("unit", self.unit, UNITS)
        if self.epoch_samples < 1:
            raise MixtureError(
                f"epoch_samples={self.epoch_samples}: expected at least 1. Check the arguments of the mixture."
            )
        check_stages(self.stages)
        if self.is_finite and len(self.stages) > 1:
            raise finite_error(self.stopping, "a schedule")

    @property
    def is_finite(self) -> bool:
        """Whether each epoch is a stream of its own."""
        return self.stopping != "restart"

    @property
    def num_datasets(self) -> int:
        """Datasets that are mixed."""
        return len(self.stages[0][1])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able fields."""
        return {
            "mixture_version": MIXTURE_VERSION,
            "epoch_samples": self.epoch_samples,
            "stages": [[start, list(weights)] for start, weights in self.stages],
            "stopping": self.stopping,
            "unit": self.unit,
        }

    @classmethod
    def from_dict(cls, fields: Any) -> MixtureSpec:
        """Rebuild a spec; undoes ``to_dict``."""
        return cls.read(Fields(fields, Origin("a mixture", MixtureError, "It may be damaged.")))

    @classmethod
    def read(cls, fields: Fields) -> MixtureSpec:
        """Rebuild a spec from checked fields; one of another version is refused."""
        version = fields.value("mixture_version") if "mixture_version" in fields else 1
        if version != MIXTURE_VERSION:
            raise PlanError(
                f"the plan's mixture has version {version!r}, this Lading computes {MIXTURE_VERSION}: its samples "
                "would come in another order. Use the Lading that wrote it, or make the plan again."
            )
        return cls(**fields.each(_FIELDS, "mixture_version"))


_FIELDS: FieldTable = {
    "epoch_samples": SIZE,
    "stages": tuple_of(row_of(COUNT, partial(Fields.integers, low=0)), least=1, most=MAX_STAGES),
    "stopping": partial(Fields.text, choices=STOPPINGS),
    "unit": partial(Fields.text, choices=UNITS),
}


def check_stages(stages: Stages) -> None:
    """Refuse stages that are no timeline of integer weights."""
    starts = [start for start, _ in stages]
    if not 1 <= len(stages) <= MAX_STAGES or starts[0] != 0:
        raise MixtureError(
            f"{len(stages)} stages start at {starts[:5]}: expected 1 to {MAX_STAGES} stages, the first at 0. "
            "Make them with lading.Mixture."
        )
    if any(after <= before for before, after in itertools.pairwise(starts)):
        raise MixtureError(f"stages start at {starts[:5]}: expected each after the one before. Put them in order.")
    for start, weights in stages:
        check_weights(weights, len(stages[0][1]), f"the stage at {start}")


def check_weights(weights: tuple[int, ...], number: int, what: str) -> None:
    """Refuse weights that are not so many integers of 0 or above that sum to 2**31."""
    if not weights or len(weights) != number or sum(weights) != TOTAL or min(weights) < 0:
        raise MixtureError(
            f"{what} has {len(weights)} weights that sum to {sum(weights)}: expected {number} integers, 0 or above, "
            "that sum to 2**31. Make them with integer_weights."
        )


def finite_error(stopping: str, what: str) -> MixtureError:
    """Return the error for a change of weights where every epoch starts anew."""
    return MixtureError(
        f"{what} cannot be used with stopping={stopping!r}: every epoch is a stream of its own there, with one set of "
        "weights, so that its end is known. Use stopping='restart'."
    )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise MixtureError(f"{name}={value!r}: expected one of {', '.join(allowed)}.")
