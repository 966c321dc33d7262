"""Policies: choose the mixture during the run, from what was seen and what was learnt.

    every_steps ─▶ policy(mix) ─▶ weights ─▶ loader.reweight ─▶ an event of the plan

    FollowLosses    more of what is learnt badly: t_d = base_d · exp(strength · (loss_d - mean loss)), summing to 1;
                    with a reference, more of what can still be learnt: loss_d - reference_d instead of loss_d
    SteerToShares   whatever was drawn so far, reach these shares of everything drawn:
                    t_d = target_d + rate · (N · target_d - n_d), where n_d of N samples are drawn when it acts

No choice goes further than ``most_change`` at once, see ``lading.kits.adaptive.policy.steering``.

A policy must give the same answer on every rank: counts are the plan's and
equal everywhere; losses must be all-reduced (``per_dataset_mean`` does it).
Its state is JSON and lives in the loader's state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lading.errors import MixtureError
from lading.kits.adaptive.policy.steering import aims, drawn_by, limited, steered
from lading.loader.policy import Mix
from lading.order.mixture.spec import integer_weights, named_weights
from lading.runtime.fields import is_number, is_whole

_SHOWN, _SHOWN_NAME = 4, 20


@dataclass
class FollowLosses:
    """Draw more from the datasets whose loss is high, or, with a reference, high above what can be reached.

    A loss that cannot fall (noise, compressed bytes, wrong labels) stays high whatever is drawn: without a reference it
    draws more and more. Give the losses of a model that was trained on a sample of each, or raise ``floor``, which
    bounds what the others can lose.

    Attributes:
        base: Shares at equal losses, by name; the ones the run began with if None.
        every_steps: Steps between two choices.
        strength: How far shares follow: a loss 1 above the mean multiplies a share by e ** strength.
        smoothing: Share of the old estimate that an observation keeps (0 follows at once).
        floor: Least share of any dataset that has one.
        most_change: Most that one choice adds to a share or takes from it; 1 for no limit.
        reference: Loss that can be reached, by name of the dataset: shares follow what is above it, and nothing below.
    """

    base: Mapping[str, float] | None = None
    every_steps: int = 100
    strength: float = 1.0
    smoothing: float = 0.9
    floor: float = 0.01
    most_change: float = 0.1
    reference: Mapping[str, float] | None = None
    losses: dict[str, float] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        numbers = all(map(is_number, (self.smoothing, self.floor, self.strength))) and is_whole(self.every_steps, 1)
        if not (numbers and 0 <= self.smoothing < 1 and 0 <= self.floor < 1 and self.strength >= 0):
            raise MixtureError(
                f"{self}: expected every_steps at least 1, smoothing and floor from 0 to below 1, strength at least 0."
            )
        _check_change(self.most_change)
        if self.base is not None:
            integer_weights(list(self.base.values()))  # refuses what is no share
        if self.reference is not None:
            _check_reference(self.reference)

    def observe(self, losses: Mapping[str, float]) -> None:
        """Note the losses of a step, as ``per_dataset_mean`` returns them: equal on all ranks."""
        for name, loss in losses.items():
            if not math.isfinite(loss):
                continue  # a step that overflowed says nothing about its data
            kept = self.losses.get(name)
            self.losses[name] = loss if kept is None else self.smoothing * kept + (1 - self.smoothing) * loss

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse shares that do not belong to these sources."""
        if self.base is not None:
            named_weights(self.base, names)

    def __call__(self, mix: Mix) -> dict[str, float] | None:
        """Return shares that follow the losses; None before any loss was seen."""
        if self.base is None:
            self.base = dict(zip(mix.names, mix.weights, strict=True))
        base = dict(zip(mix.names, named_weights(self.base, mix.names), strict=True))
        self._check_datasets(mix)
        losses = self._by_source(mix)
        known = {name: loss for name, loss in losses.items() if base.get(name, 0) > 0}
        if not known:
            return None
        mean = math.fsum(known.values()) / len(known)
        logs = {n: math.log(w) + self.strength * (known.get(n, mean) - mean) for n, w in base.items() if w > 0}
        top = max(logs.values())
        lifted = _floored({n: math.exp(log - top) for n, log in logs.items()}, self.floor)
        return limited(mix, {name: lifted.get(name, 0.0) for name in mix.names}, self.most_change)

    @property
    def reason(self) -> str:
        """What the last choice was made from."""
        listed = _listed({name: f"{loss:.4g}" for name, loss in self._followed.items()})
        above = "" if self.reference is None else "above the reference "
        return f"FollowLosses: {above}{listed}" if listed else "FollowLosses"

    @property
    def _followed(self) -> dict[str, float]:
        """What shares follow: the losses, or what of them is above the reference; unknown where that is."""
        if self.reference is None:
            return self.losses
        known = {name: (loss, self.reference[name]) for name, loss in self.losses.items() if name in self.reference}
        return {name: max(loss - reached, 0.0) for name, (loss, reached) in known.items()}

    def _check_datasets(self, mix: Mix) -> None:
        """Refuse a reference for datasets that the mixture does not have."""
        names = {*mix.names, *(name for datasets in mix.datasets for name in datasets)}
        strange = sorted(set(self.reference or ()) - names)
        if strange:
            raise MixtureError(f"reference names {strange[0]!r}: expected datasets of {', '.join(sorted(names))}.")

    def _by_source(self, mix: Mix) -> dict[str, float]:
        """Return what is followed by source; of a source with several datasets the mean over its rows, where known."""
        losses = self._followed
        found = {name: loss for name, loss in losses.items() if name in mix.names}
        for source, datasets in zip(mix.names, mix.datasets, strict=False):
            known = {name: share for name, share in datasets.items() if name in losses and share > 0}
            if known:
                total = math.fsum(known.values())
                found[source] = math.fsum(losses[name] * share for name, share in known.items()) / total
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the smoothed losses and the shares they are measured against."""
        return {"losses": dict(self.losses), "base": dict(self.base) if self.base is not None else None}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""
        self.losses, self.base = dict(state["losses"]), state["base"]


@dataclass
class SteerToShares:
    """Reach given shares of everything drawn, whatever was drawn so far, and do not go beyond them.

    A change acts ``lookahead_steps`` + 1 steps after the batch after which it is made; what counts is what is drawn by
    then (``steering`` says how). Where no source is more than 5 samples from its target, which is what
    whole samples make of shares, the targets themselves are wanted: no more events.

    Attributes:
        targets: Shares to reach, by name; of samples, or of tokens where the mixture counts tokens.
        every_steps: Steps between two choices.
        horizon: Share of what was drawn so far within which to get there; smaller is more abrupt.
        most_change: Most that one choice adds to a share or takes from it; 1 for no limit.
    """

    targets: Mapping[str, float]
    every_steps: int = 100
    horizon: float = 0.25
    most_change: float = 0.1
    reason: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not (is_whole(self.every_steps, 1) and is_number(self.horizon) and self.horizon > 0):
            raise MixtureError(f"{self}: expected every_steps at least 1 and horizon above 0.")
        integer_weights(list(self.targets.values()))  # refuses what is no share
        _check_change(self.most_change)

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse targets that do not belong to these sources."""
        named_weights(self.targets, names)

    def __call__(self, mix: Mix) -> dict[str, float] | None:
        targets, drawn = aims(self.targets, mix.names), drawn_by(mix)
        wanted = steered(mix, targets, self.horizon, self.every_steps, self.most_change)
        if wanted is None:
            return None
        whole = math.fsum(drawn)
        reached = {n: f"{d / whole:.3g} of {t:.3g}" for n, d, t in zip(mix.names, drawn, targets, strict=True)}
        self.reason = f"SteerToShares: {_listed(reached)}"
        return limited(mix, wanted, self.most_change)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: counts are the plan's."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken."""


def _check_reference(reference: Any) -> None:
    if not (isinstance(reference, Mapping) and reference and all(map(is_number, reference.values()))):
        raise MixtureError(
            f"reference={reference!r}: expected a loss for each dataset, by name, such as {{'code': 1.2, 'web': 2.9}}."
        )


def _check_change(most_change: float) -> None:
    if not (is_number(most_change) and 0 < most_change <= 1):
        raise MixtureError(f"most_change={most_change!r}: expected a share above 0, up to 1 (no limit).")


def _listed(values: Mapping[str, str]) -> str:
    """Return a few values by name, for a reason: it is kept as long as its event has not acted."""
    shown = ", ".join(f"{name[:_SHOWN_NAME]} {value}" for name, value in list(values.items())[:_SHOWN])
    return f"{shown} ..." if len(values) > _SHOWN else shown


def _floored(weights: Mapping[str, float], floor: float) -> dict[str, float]:
    """Return shares of which none lies below the floor (or below an equal share, if that is less)."""
    whole, least = math.fsum(weights.values()), min(floor, 1 / len(weights))
    return {name: w / whole * (1 - least * len(weights)) + least for name, w in weights.items()}
