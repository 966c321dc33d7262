"""The weighted mixture as a plan stores it: integers only, nothing left to evaluate.

stages     ((0, (1503238554, 644245094)), (2048000, (1073741824, 1073741824)))
stopping   restart          the draws run on over the epochs: absolute position = stream position
           first_exhausted  each epoch is a stream of its own, up to the first repeat
           all_exhausted    each epoch is a stream of its own, until everybody was seen whole
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lading.errors import MixtureError
from lading.order.mixture.rounds import BLOCK
from lading.order.mixture.weights import TOTAL

STOPPINGS = ("restart", "first_exhausted", "all_exhausted")
UNITS = ("samples", "tokens")
MAX_STAGES = 4096
LOOKAHEAD_STEPS = 32


@dataclass(frozen=True)
class MixtureSpec:
    """What a plan keeps of a weighted mixture.

    Attributes:
        epoch_samples: Samples of an epoch.
        stages: (first position, integer weights that sum to 2**31), ascending, starts at block boundaries.
        stopping: When an epoch's stream of draws ends.
        unit: What the weights were given in; the integers always weigh samples.
        lookahead_steps: Steps that may be prefetched; a reweighting acts after that many.
    """

    epoch_samples: int
    stages: tuple[tuple[int, tuple[int, ...]], ...]
    stopping: str = "restart"
    unit: str = "samples"
    lookahead_steps: int = LOOKAHEAD_STEPS

    def __post_init__(self) -> None:
        _one_of("stopping", self.stopping, STOPPINGS)
        _one_of("unit", self.unit, UNITS)
        if self.epoch_samples < 1 or self.lookahead_steps < 0:
            raise MixtureError(
                f"epoch_samples={self.epoch_samples}, lookahead_steps={self.lookahead_steps}: "
                "expected at least 1 and at least 0. Check the arguments of the mixture."
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
            "epoch_samples": self.epoch_samples,
            "stages": [[start, list(weights)] for start, weights in self.stages],
            "stopping": self.stopping,
            "unit": self.unit,
            "lookahead_steps": self.lookahead_steps,
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> MixtureSpec:
        """Rebuild a spec; undoes ``to_dict``."""
        stages = tuple((int(start), tuple(int(w) for w in weights)) for start, weights in fields["stages"])
        return cls(**{**fields, "stages": stages})


def check_stages(stages: tuple[tuple[int, tuple[int, ...]], ...]) -> None:
    """Refuse stages that are no timeline of integer weights."""
    starts = [start for start, _ in stages]
    if not 1 <= len(stages) <= MAX_STAGES or starts[0] != 0 or any(start % BLOCK for start in starts):
        raise MixtureError(
            f"stages start at {starts[:5]}: expected 1 to {MAX_STAGES} stages, the first at 0, all at multiples of "
            f"{BLOCK}. Make them with lading.order.mixture.request."
        )
    if any(after <= before for before, after in itertools.pairwise(starts)):
        raise MixtureError(f"stages start at {starts[:5]}: expected each after the one before. Put them in order.")
    for start, weights in stages:
        if len(weights) != len(stages[0][1]) or sum(weights) != TOTAL or min(weights) < 0:
            raise MixtureError(
                f"the stage at {start} has {len(weights)} weights that sum to {sum(weights)}: "
                f"expected {len(stages[0][1])} integers, 0 or above, that sum to 2**31. Make them with integer_weights."
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
