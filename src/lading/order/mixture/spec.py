"""The weighted mixture as a plan stores it: integers only, nothing left to evaluate.

stages     ((0, (1503238554, 644245094)), (2048000, (1073741824, 1073741824)))
           each acts from the first step whose first sample is at or after its position
stopping   restart          the draws continue over the epochs: one stream for the whole run
           first_exhausted  each epoch is a stream of its own, up to the first repeat
           all_exhausted    each epoch is a stream of its own, until every sample was seen

The integers are made of the weights that the user gives:

    {"code": .7, "prose": .3}  ─▶  (0.7, 0.3)  ─▶  (1503238554, 644245094)     sum 2**31

A float is an exact fraction, so they are worked out without rounding on the way: floor, at least 1 for every positive
weight, the rest by largest remainder. *The integers are the plan*; shares are measured against them.

``MIXTURE_VERSION`` is written into every mixture: another version gives another order of the same weights.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from lading.errors import MixtureError, PlanError
from lading.runtime.fields import COUNT, SIZE, Fields, FieldTable, Origin, listed, row_of, tuple_of

TOTAL = 1 << 31
MAX_DATASETS = 1 << 20
MAX_POSITION = 1 << 60  # positions and draws stay below it, so that the kernels' products fit 64 bits

Weights = Mapping[str, float] | Sequence[float]


def integer_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Return integers that sum to 2**31 and stand for the shares of the weights.

    >>> integer_weights([1, 1]), integer_weights([1e-12, 1, 0])
    ((1073741824, 1073741824), (1, 2147483647, 0))
    """
    exact = _exact(weights)
    whole = sum(exact)
    floors = [max(w * TOTAL // whole, 1) if w else 0 for w in exact]
    rest = TOTAL - sum(floors)
    if rest > 0:
        # A weight lifted to 1 has a negative remainder here, so it comes last.
        remainders = [(floors[d] * whole - w * TOTAL, d) for d, w in enumerate(exact) if w]
        for _, d in heapq.nsmallest(rest, remainders):
            floors[d] += 1
    elif rest < 0:
        _take_from_largest(floors, -rest)
    return tuple(floors)


def named_weights(weights: Weights, names: Sequence[str]) -> list[float]:
    """Return weights in the order of the datasets; every dataset must be named, and no other.

    >>> named_weights({"prose": .3, "code": .7}, ["code", "prose"])
    [0.7, 0.3]
    """
    if not isinstance(weights, Mapping):
        if isinstance(weights, str) or not isinstance(weights, Iterable):
            raise MixtureError(f"weights are {weights!r}: expected a number for each of {_some(names)}, or a mapping.")
        values = list(weights)
        if len(values) != len(names):
            raise MixtureError(
                f"{len(values)} weights were given for {len(names)} datasets ({_some(names)}): expected one each. "
                "Pass a weight for every dataset, 0 to leave one out; weights of single samples are sample_weights=."
            )
        return values
    unknown = [str(name) for name in weights if name not in names]
    if unknown:
        raise MixtureError(
            f"weights name {_some(unknown)}, but the datasets are {_some(names)}. Correct the name, or add the dataset."
        )
    missing = [name for name in names if name not in weights]
    if missing:
        raise MixtureError(
            f"weights say nothing about {_some(missing)}. Give every dataset a weight, 0 to leave it out."
        )
    return [weights[name] for name in names]


def tempered(weights: Sequence[float], temperature: float) -> list[float]:
    """Return shares ``w ** (1 / temperature)``: 1 keeps them, above 1 flattens, infinity makes them equal.

    >>> tempered([1, 9], 2)
    [0.25, 0.75]
    """
    if not isinstance(temperature, int | float) or not temperature > 0:
        raise MixtureError(
            f"temperature={temperature!r}: expected a number above 0 (1 changes nothing, inf makes equal)."
        )
    exact = _exact(weights)
    log_largest = math.log(max(exact))
    powers = [math.exp((math.log(w) - log_largest) / temperature) if w else 0.0 for w in exact]
    scale = math.fsum(powers)
    return [power / scale for power in powers]


def sample_weights(
    token_weights: Sequence[float], mean_tokens: Sequence[float | None], names: Sequence[str]
) -> list[Any]:
    """Turn shares of tokens into shares of samples: each divided by the dataset's mean tokens per sample.

    >>> sample_weights([1, 1], [100, 1000], ["short", "long"])
    [Fraction(1, 100), Fraction(1, 1000)]
    """
    weights: list[Any] = []
    for weight, tokens, name in zip(token_weights, mean_tokens, names, strict=True):
        if tokens is None or not math.isfinite(tokens) or tokens <= 0:
            raise MixtureError(
                f"weights by tokens need the mean tokens per sample of {name!r}: expected a number above 0, found "
                f"{tokens}. Pass mean_tokens={{{name!r}: ...}}, or weigh by samples."
            )
        _check(weight)
        weights.append(Fraction(weight) / Fraction(tokens))
    return weights


def shares(weights: Sequence[int]) -> list[float]:
    """Return integer weights as fractions of 1."""
    return [w / TOTAL for w in weights]


def _exact(weights: Sequence[float]) -> list[int]:
    """Return weights as integers in the same exact proportions."""
    if not 1 <= len(weights) <= MAX_DATASETS:
        raise MixtureError(f"{len(weights)} weights were given: expected 1 to 2**20. Join small datasets into one.")
    for weight in weights:
        _check(weight)
    # NumPy's integers and tensors have no ratio of their own
    ratios = [(w if hasattr(w, "as_integer_ratio") else float(w)).as_integer_ratio() for w in weights]
    if not any(numerator for numerator, _ in ratios):
        raise MixtureError(
            "all weights are zero: nothing would ever be drawn. Give at least one dataset a weight above 0."
        )
    common = math.lcm(*{denominator for _, denominator in ratios})  # floats have few: powers of two
    return [numerator * (common // denominator) for numerator, denominator in ratios]


def _check(weight: Any) -> None:
    try:
        holds = math.isfinite(weight) and weight >= 0
    except TypeError:
        holds = False
    if not holds:
        raise MixtureError(
            f"a weight is {weight!r}: expected a finite number, 0 or above. Use 0 to leave a dataset out."
        )


def _take_from_largest(weights: list[int], excess: int) -> None:
    heap = [(-w, d) for d, w in enumerate(weights)]
    heapq.heapify(heap)
    for _ in range(excess):
        negative, d = heap[0]
        weights[d] -= 1
        heapq.heapreplace(heap, (negative + 1, d))


def _some(names: Sequence[str]) -> str:
    return listed(map(repr, names), 5)


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
