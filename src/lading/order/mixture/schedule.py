"""Weights that change during a run, as planned beforehand.

    Stages       ▔▔▔▔▔╲▁▁▁▁▁     constant, then constant; a plain list means this
    Linear       ▔▔╲            from point to point in a straight line
    Cosine          ╲▁▁         the same, with soft shoulders
    Temperature  shares ** (1 / T), T from point to point
    Function     anything that can be called, until a point

Nothing of this survives in a plan: a schedule is evaluated once, into at most
4 096 stages of constant weights. A stage stores the position that was asked for
and acts from the first step whose first sample is at or after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lading.errors import MixtureError
from lading.order.batch_schedule import Duration
from lading.order.mixture.spec import Weights, named_weights, tempered

PIECES = 256


@dataclass(frozen=True)
class Segment:
    """A stretch of a schedule.

    Attributes:
        end: Where it ends; None for the last.
        weights: Weights at the share u (0 to 1) of the stretch.
        pieces: Stages to cut it into.
    """

    begin: Duration
    end: Duration | None
    weights: Callable[[float], list[float]]
    pieces: int


class Schedule(Protocol):
    """What a schedule says of itself."""

    def segments(self, names: Sequence[str], base: Sequence[float]) -> list[Segment]:
        """Return the stretches of the schedule, in order; ``base`` are the weights (or lengths) it starts from."""
        ...


@dataclass(frozen=True)
class Stages:
    """Constant weights from each point on: ``[(0, {...}), ("2000ba", {...})]``."""

    points: Sequence[tuple[Any, Weights]]

    def segments(self, names: Sequence[str], base: Sequence[float]) -> list[Segment]:
        """Return one stretch for each stage."""
        values = [named_weights(weights, names) for _, weights in _checked(self.points)]
        return _stretches(self.points, values, lambda before, after, u: before, 1)


@dataclass(frozen=True)
class Linear:
    """Weights that go in straight lines from point to point, then stay."""

    points: Sequence[tuple[Any, Weights]]
    pieces: int = PIECES

    def segments(self, names: Sequence[str], base: Sequence[float]) -> list[Segment]:
        """Return one stretch between any two points."""
        values = [_normal(named_weights(weights, names)) for _, weights in _checked(self.points)]
        return _stretches(self.points, values, _blend, self.pieces)


@dataclass(frozen=True)
class Cosine:
    """Weights that go from point to point along half a cosine, then stay."""

    points: Sequence[tuple[Any, Weights]]
    pieces: int = PIECES

    def segments(self, names: Sequence[str], base: Sequence[float]) -> list[Segment]:
        """Return one stretch between any two points."""
        values = [_normal(named_weights(weights, names)) for _, weights in _checked(self.points)]
        return _stretches(
            self.points, values, lambda a, b, u: _blend(a, b, (1 - math.cos(math.pi * u)) / 2), self.pieces
        )


@dataclass(frozen=True)
class Temperature:
    """Weights (or, without any, lengths) to the power 1/T: ``[(0, 1.0), ("10ep", 5.0)]``, T in straight lines."""

    points: Sequence[tuple[Any, float]]
    pieces: int = PIECES

    def segments(self, names: Sequence[str], base: Sequence[float]) -> list[Segment]:
        """Return one stretch between any two points."""
        values = [[float(t)] for _, t in _checked(self.points)]
        stretches = _stretches(self.points, values, _blend, self.pieces)
        return [Segment(s.begin, s.end, _tempering(base, s.weights), s.pieces) for s in stretches]


@dataclass(frozen=True)
class Function:
    """Any callable: given the point reached (in the unit of ``until``), it returns weights.

    >>> Function(lambda step: [1, 1 + step / 1000], until="5000ba").pieces
    256
    """

    function: Callable[[float], Weights]
    until: Any
    pieces: int = PIECES

    def segments(self, names: Sequence[str], base: Sequence[float]) -> list[Segment]:
        """Return the stretch until the last point, and what holds from there."""
        until = Duration.parse(self.until)

        def weights(u: float) -> list[float]:
            return named_weights(self.function(u * until.value), names)

        return [
            Segment(Duration(0, until.unit), until, weights, self.pieces),
            Segment(until, None, lambda u: weights(1.0), 1),
        ]


_KINDS: dict[str, Any] = {"stages": Stages, "linear": Linear, "cosine": Cosine, "temperature": Temperature}


def as_schedule(schedule: Any) -> Schedule:
    """Return what was given as a schedule: a list means stages, a mapping with ``kind`` comes from a configuration."""
    found: Schedule
    if hasattr(schedule, "segments"):
        found = schedule
        return found
    if callable(schedule):
        raise MixtureError(
            "a bare callable does not say how long it is to be followed. "
            "Wrap it: Function(callable, until='10000ba'); it is called with steps then, or with the unit of until."
        )
    if isinstance(schedule, dict):
        fields = dict(schedule)
        kind = fields.pop("kind", None)
        if kind not in _KINDS or not set(fields) <= {"points", "pieces"} or "points" not in fields:
            raise MixtureError(
                f"a schedule has the keys {sorted(schedule)}: expected kind (one of {', '.join(_KINDS)}), points and, "
                "if wanted, pieces."
            )
        found = _KINDS[kind](**fields)
        return found
    return Stages(schedule)


def _checked(points: Sequence[tuple[Any, Any]]) -> Sequence[tuple[Any, Any]]:
    for point in points:
        if not isinstance(point, list | tuple) or len(point) != 2:
            raise MixtureError(f"{point!r} is no point of a schedule: expected a pair (when, value).")
    if not points or Duration.parse(points[0][0]).value != 0:
        first = points[0][0] if points else "nothing"
        raise MixtureError(f"a schedule begins with {first!r}: expected its first point at 0. Add (0, ...) in front.")
    return points


def _stretches(points: Sequence[tuple[Any, Any]], values: list[list[float]], shape: Any, pieces: int) -> list[Segment]:
    times = [Duration.parse(when) for when, _ in points]

    def between(k: int) -> Callable[[float], list[float]]:
        return lambda u: shape(values[k], values[k + 1], u)

    inner = [Segment(times[k], times[k + 1], between(k), pieces) for k in range(len(times) - 1)]
    return [*inner, Segment(times[-1], None, lambda u: values[-1], 1)]


def _blend(before: list[float], after: list[float], u: float) -> list[float]:
    return [a + (b - a) * u for a, b in zip(before, after, strict=True)]


def _normal(weights: list[float]) -> list[float]:
    whole = math.fsum(weights)
    # Nonsense (negative, all zero) passes through: integer_weights names it.
    return [w / whole for w in weights] if whole > 0 and min(weights) >= 0 else weights


def _tempering(base: Sequence[float], temperature: Callable[[float], list[float]]) -> Callable[[float], list[float]]:
    return lambda u: tempered(base, temperature(u)[0])
