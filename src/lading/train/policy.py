"""Policies: choose the mixture while the run goes on, from what was seen and what was learnt.

    every_steps ─▶ policy(mix) ─▶ weights ─▶ loader.reweight ─▶ an event of the plan

    FollowLosses    more of what is learnt badly: shares times exp(strength · (loss - mean loss))
    SteerToShares   whatever was drawn so far, reach these shares of everything drawn

A policy must give the same answer on every rank: counts are the plan's and
equal everywhere; losses must be all-reduced (``per_dataset_mean`` does it).
Its state is JSON and lives in the loader's state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.errors import MixtureError
from lading.loader.reweighting import Mix
from lading.order.weights import named_weights


@dataclass
class FollowLosses:
    """Draw more from the datasets whose loss is high.

    Attributes:
        base: Shares at equal losses, by name; the ones the run began with if None.
        every_steps: Steps between two choices.
        strength: How far shares follow: a loss 1 above the mean multiplies a share by e ** strength.
        smoothing: Share of the old estimate that an observation keeps (0 follows at once).
        floor: Least share of any dataset that has one.
    """

    base: Mapping[str, float] | None = None
    every_steps: int = 100
    strength: float = 1.0
    smoothing: float = 0.9
    floor: float = 0.01
    losses: dict[str, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not (self.every_steps >= 1 and 0 <= self.smoothing < 1 and 0 <= self.floor < 1 and self.strength >= 0):
            raise MixtureError(
                f"{self}: expected every_steps at least 1, smoothing and floor from 0 to below 1, strength at least 0."
            )

    def observe(self, losses: Mapping[str, float]) -> None:
        """Note the losses of a step, as ``per_dataset_mean`` returns them: equal on all ranks."""
        for name, loss in losses.items():
            if not math.isfinite(loss):
                continue  # a step that overflowed says nothing about its data
            kept = self.losses.get(name)
            self.losses[name] = loss if kept is None else self.smoothing * kept + (1 - self.smoothing) * loss

    def __call__(self, mix: Mix) -> dict[str, float] | None:
        """Return shares that follow the losses; None before any loss was seen."""
        if self.base is None:
            self.base = dict(zip(mix.names, mix.weights, strict=True))
        base = dict(zip(mix.names, named_weights(self.base, mix.names), strict=True))
        known = {name: loss for name, loss in self.losses.items() if base.get(name, 0) > 0}
        if not known:
            return None
        mean = math.fsum(known.values()) / len(known)
        logs = {n: math.log(w) + self.strength * (known.get(n, mean) - mean) for n, w in base.items() if w > 0}
        top = max(logs.values())
        lifted = _floored({n: math.exp(log - top) for n, log in logs.items()}, self.floor)
        return {name: lifted.get(name, 0.0) for name in mix.names}

    def state_dict(self) -> dict[str, Any]:
        """Return the smoothed losses and the shares they are measured against."""
        return {"losses": dict(self.losses), "base": dict(self.base) if self.base is not None else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""
        self.losses, self.base = dict(state["losses"]), state["base"]


@dataclass
class SteerToShares:
    """Reach given shares of everything drawn, whatever was drawn so far.

    Attributes:
        targets: Shares to reach, by name; of samples, or of tokens where the mixture counts tokens.
        every_steps: Steps between two choices.
        horizon: Share of what was drawn so far within which to get there; smaller is more abrupt.
    """

    targets: Mapping[str, float]
    every_steps: int = 100
    horizon: float = 0.25

    def __post_init__(self) -> None:
        if not (self.every_steps >= 1 and self.horizon > 0):
            raise MixtureError(f"{self}: expected every_steps at least 1 and horizon above 0.")

    def __call__(self, mix: Mix) -> dict[str, float] | None:
        """Return the shares that make up for what is missing."""
        return steered(mix, self.targets, self.horizon)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: counts are the plan's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken."""


def steered(mix: Mix, targets: Mapping[str, float], horizon: float) -> dict[str, float] | None:
    """Return the shares that bring the counts to the targets within the horizon; None before anything was drawn.

    >>> mix = Mix(8, ("a", "b"), (9, 9), (None, None), counts=(300, 100), weights=(.75, .25))
    >>> steered(mix, {"a": 1, "b": 1}, horizon=1.0)
    {'a': 0.25, 'b': 0.75}
    """
    wanted = named_weights(targets, mix.names)
    drawn: list[float] = list(mix.counts)
    if mix.unit == "tokens":
        drawn = [n * (tokens or 0.0) for n, tokens in zip(mix.counts, mix.mean_tokens, strict=True)]
    whole, scale = math.fsum(drawn), math.fsum(wanted)
    if whole == 0 or not scale > 0:
        return None if whole == 0 else dict(zip(mix.names, wanted, strict=True))
    reach = whole * (1 + horizon)
    missing = [max(reach * w / scale - n, 0.0) for w, n in zip(wanted, drawn, strict=True)]
    total = math.fsum(missing)
    return {name: m / total for name, m in zip(mix.names, missing, strict=True)}


def _floored(weights: Mapping[str, float], floor: float) -> dict[str, float]:
    """Return shares of which none lies below the floor (or below an equal share, if that is less)."""
    whole, least = math.fsum(weights.values()), min(floor, 1 / len(weights))
    return {name: w / whole * (1 - least * len(weights)) + least for name, w in weights.items()}
