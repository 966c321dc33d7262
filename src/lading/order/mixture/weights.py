"""Turn the weights the user gives into the integers a plan is made of.

    {"code": .7, "prose": .3}  ─▶  (0.7, 0.3)  ─▶  (1503238554, 644245094)     sum 2**31

A float is an exact fraction, so the integers are worked out without rounding
on the way: floor, at least 1 for every positive weight, the rest by largest
remainder. *The integers are the plan*; shares are measured against them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from lading.errors import MixtureError

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


def _some(names: Sequence[str], limit: int = 5) -> str:
    listed = ", ".join(repr(str(name)) for name in names[:limit])
    return listed + (f" and {len(names) - limit} more" if len(names) > limit else "")
