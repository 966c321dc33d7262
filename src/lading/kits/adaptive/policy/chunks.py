"""Policies of chunks: how long the next one is, and which it is.

GrowWhileImproving   size · factor while the metric improves, size / factor when it does not
PaceValidation       size · factor where the trend of the metric is slow, size / factor where it is fast
LearningValue        the chunk whose group has the highest loss, improvement or age

All see the same on every rank: a metric that was averaged over the ranks, chunk
and step numbers. What they remember is JSON, bounded, and lives in the loader's
state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lading.errors import ConfigError, PlanError
from lading.loader.policy import Trained
from lading.runtime.fields import is_number, is_whole

GROUPS = 32  # neighbouring chunks whose signals are remembered together: a state does not grow with the data
SIGNALS = ("loss", "improvement", "age")


@dataclass
class GrowWhileImproving:
    """Longer chunks while validation improves, shorter ones when it does not.

    After each validation, with *b* the best metric so far:

        improved  =  metric better than b by more than ``least_gain`` · |b|
        size      =  size · factor  if improved,  size / factor  if not,  within [least, most]

    Attributes:
        factor: How far one change goes.
        least: Fewest batches of a chunk.
        most: Most batches of a chunk.
        least_gain: Relative gain that counts as an improvement.
        mode: ``min`` where a lower metric is better, ``max`` where a higher one is.
    """

    factor: float = 2.0
    least: int = 1
    most: int = 1 << 20
    least_gain: float = 0.0
    mode: str = "min"
    best: float | None = field(default=None, repr=False)
    reason: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        _check_sizes(self.factor, self.least, self.most)
        if self.mode not in ("min", "max") or not (is_number(self.least_gain) and self.least_gain >= 0):
            raise PlanError(f"{self}: expected mode 'min' or 'max' and least_gain at least 0.")

    def __call__(self, trained: Trained) -> int | None:
        """Return the size that follows from a validation; None for the first, which only sets the mark."""
        if trained.metric is None or not math.isfinite(trained.metric):
            return None
        before, value = self.best, trained.metric
        gain = math.inf if before is None else (before - value if self.mode == "min" else value - before)
        if gain > 0:
            self.best = value
        if before is None:
            return None
        improved = gain > self.least_gain * abs(before)
        self.reason = f"metric {value:.4g} {'improves on' if improved else 'is no better than'} {before:.4g}"
        return _within(trained.size * (self.factor if improved else 1 / self.factor), self.least, self.most)

    def state_dict(self) -> dict[str, Any]:
        """Return the best metric so far."""
        return {"best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        self.best = None if state["best"] is None else float(state["best"])


@dataclass
class PaceValidation:
    """Validate often and on little while the metric moves fast, seldom and on more when it hardly moves.

    After each validation, with *l* the metric before it:

        move   =  (metric - l) / max(|metric|, |l|)
        trend  =  smoothing · trend + (1 - smoothing) · move        (at first: the move)
        size   =  size / factor  if |trend| > fast,  size · factor  if |trend| < slow,  else as it is;  in [least, most]

    Moves have a sign, so that the noise of a small validation cancels out instead of asking for a smaller one.

    For the training loader the size says how often, for the validation loader on how much: give each its own.

    Attributes:
        fast: Trend above which chunks become shorter.
        slow: Trend below which they become longer.
        smoothing: Share of the trend that a validation keeps; 0: only the last move counts.
        factor: How far one change goes.
        least: Fewest batches of a chunk.
        most: Most batches of a chunk.
    """

    fast: float = 0.05
    slow: float = 0.01
    smoothing: float = 0.7
    factor: float = 2.0
    least: int = 1
    most: int = 1 << 20
    last: float | None = field(default=None, repr=False)
    trend: float | None = field(default=None, repr=False)
    reason: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        _check_sizes(self.factor, self.least, self.most)
        numbers = all(map(is_number, (self.slow, self.fast, self.smoothing)))
        if not (numbers and 0 <= self.slow < self.fast and 0 <= self.smoothing < 1):
            raise PlanError(f"{self}: expected slow from 0 up, fast above it, and smoothing from 0 to below 1.")

    def __call__(self, trained: Trained) -> int | None:
        """Return the size that follows from a validation; None for the first."""
        if trained.metric is None or not math.isfinite(trained.metric):
            return None
        before, self.last = self.last, trained.metric
        if before is None:
            return None
        move = (trained.metric - before) / max(abs(before), abs(trained.metric), 1e-12)
        self.trend = move if self.trend is None else self.smoothing * self.trend + (1 - self.smoothing) * move
        if self.slow <= abs(self.trend) <= self.fast:
            return None
        is_fast = abs(self.trend) > self.fast
        word = "fast" if is_fast else "slowly"
        self.reason = f"metric moves {word}: {trained.metric:.4g}, trend {100 * self.trend:+.2g} %"
        change = 1 / self.factor if is_fast else self.factor
        return _within(trained.size * change, self.least, self.most)

    def state_dict(self) -> dict[str, Any]:
        """Return the metric seen last, and its trend."""
        return {"last": self.last, "trend": self.trend}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        self.last, self.trend = (None if state[name] is None else float(state[name]) for name in ("last", "trend"))


@dataclass
class LearningValue:
    """Choose the chunk that promises most.

    A group of neighbouring chunks (at most 32 groups) has the mean training loss of the chunk that was trained on last,
    the loss before it, and when that was. Value of a chunk that is left in the pass:

        loss          the loss of its group
        improvement   the loss before it - the loss of its group
        age           chunks since its group was trained on

    plus ``age_weight`` · age. Groups never trained on come first; equal values in the order of the data.

    Attributes:
        signal: ``loss``, ``improvement`` or ``age``.
        age_weight: What one chunk of age adds, so that nothing waits for the end of every pass.
    """

    signal: str = "loss"
    age_weight: float = 0.0
    groups: dict[int, list[float]] = field(default_factory=dict, repr=False)  # group: [loss, loss before, chunk]
    reason: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS or not (is_number(self.age_weight) and self.age_weight >= 0):
            raise PlanError(
                f"signal={self.signal!r}, age_weight={self.age_weight!r}: expected one of {', '.join(SIGNALS)}, and a "
                "weight from 0 up."
            )

    def observe(self, number: int, total: int, trained: Trained) -> None:
        """Note the loss of a chunk that was trained on."""
        group = _group(number, total)
        before = self.groups.get(group, [math.nan, math.nan, 0])[0]
        loss = trained.metric if trained.loss is None else trained.loss
        value = before if loss is None or not math.isfinite(loss) else _short(loss)
        self.groups[group] = [value, before, trained.chunk]

    def __call__(self, candidates: Sequence[int], total: int, chunk: int) -> int:
        values = {number: self._value(_group(number, total), chunk) for number in candidates}
        chosen = max(candidates, key=lambda number: (values[number], -number))
        value = values[chosen]
        self.reason = "not seen yet" if value == math.inf else f"{self.signal}: value {value:.4g}"
        return chosen

    def _value(self, group: int, chunk: int) -> float:
        if group not in self.groups:
            return math.inf
        loss, before, last = self.groups[group]
        age = float(chunk - last)
        signal = {"loss": loss, "improvement": before - loss, "age": age}[self.signal]
        return (signal if math.isfinite(signal) else 0.0) + self.age_weight * age

    def state_dict(self) -> dict[str, Any]:
        """Return what is known of each group."""
        kept = self.signal == "improvement"
        return {
            "groups": [[g, _plain(v), _plain(before) if kept else None, c] for g, (v, before, c) in self.groups.items()]
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        rows = [(int(g), [_number(loss), _number(before), int(chunk)]) for g, loss, before, chunk in state["groups"]]
        if len(rows) > GROUPS:
            raise ValueError(f"expected at most {GROUPS} groups, found {len(rows)}")
        self.groups = dict(rows)


def resize_of(given: Any) -> Any:
    """Return the policy of sizes that a configuration file describes; what is one already is returned as it is."""
    return _made(given, {"grow_while_improving": GrowWhileImproving, "pace_validation": PaceValidation}, "resize")


def choice_of(given: Any) -> Any:
    """Return the policy of chunks that a configuration file describes; what is one already is returned as it is."""
    return _made(given, {"learning_value": LearningValue}, "choose")


def _made(given: Any, kinds: Mapping[str, type], key: str) -> Any:
    if given is None or not isinstance(given, str | Mapping):
        return given
    fields = {"policy": given} if isinstance(given, str) else dict(given)
    kind = fields.pop("policy", None)
    if kind not in kinds:
        raise ConfigError(
            f"{key}: policy {kind!r}: expected one of {', '.join(kinds)}, such as {{policy: {next(iter(kinds))}}}."
        )
    made = kinds[kind]
    try:
        return made(**fields)
    except TypeError as error:
        raise ConfigError(f"{key}: {kind} does not take {', '.join(map(str, fields))}: {error}.") from error


def _check_sizes(factor: float, least: int, most: int) -> None:
    if not (is_number(factor) and factor > 1 and is_whole(least, 1) and is_whole(most, least)):
        raise PlanError(
            f"factor={factor!r}, least={least!r}, most={most!r}: expected factor above 1, and integers 1 <= least <= "
            "most."
        )


def _within(size: float, least: int, most: int) -> int:
    return int(min(max(round(size), least), most))


def _group(number: int, total: int) -> int:
    return number if total <= GROUPS else number * GROUPS // total


def _short(value: float) -> float:
    """Return a number with few digits: what is remembered is what is compared, before and after a resume."""
    return float(f"{value:.5g}")


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _plain(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    return int(value) if float(value).is_integer() else value
