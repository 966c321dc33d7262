"""Policies: choose the mixture during the run, from what was seen and what was learnt.

    every_steps ─▶ policy(mix) ─▶ weights ─▶ loader.reweight ─▶ an event of the plan

    FollowLosses    more of what is learnt badly: t_d = base_d · exp(strength · (loss_d - mean loss)), summing to 1
    SteerToShares   whatever was drawn so far, reach these shares of everything drawn:
                    t_d = target_d + rate · (N · target_d - n_d), where n_d of N samples are drawn when it acts

No choice goes further than ``most_change`` at once, see ``lading.train.steering``.

A policy must give the same answer on every rank: counts are the plan's and
equal everywhere; losses must be all-reduced (``per_dataset_mean`` does it).
Its state is JSON and lives in the loader's state.

``MixtureScheduler`` steers by what a ``BatchTracker`` saw:

    tracker.n_samples_per_dataset ─▶ scheduler.step() ─▶ probabilities ─▶ loader.reweight

What is new on each rank is added up over all ranks at every step,
so all ranks choose alike and the state is the same everywhere. The tracker may
be reset right after a step of the scheduler, as often as one likes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lading.errors import MixtureError
from lading.identity.world import process_group
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.base import EngineLoader
from lading.loader.reweighting import Mix, Policy, mix_at, reason_of
from lading.order.mixture.weights import integer_weights, named_weights
from lading.runtime.numbers import is_number, is_whole
from lading.train.steering import aims, drawn_by, limited, steered

_SHOWN, _SHOWN_NAME = 4, 20


@dataclass
class FollowLosses:
    """Draw more from the datasets whose loss is high.

    Attributes:
        base: Shares at equal losses, by name; the ones the run began with if None.
        every_steps: Steps between two choices.
        strength: How far shares follow: a loss 1 above the mean multiplies a share by e ** strength.
        smoothing: Share of the old estimate that an observation keeps (0 follows at once).
        floor: Least share of any dataset that has one.
        most_change: Most that one choice adds to a share or takes from it; 1 for no limit.
    """

    base: Mapping[str, float] | None = None
    every_steps: int = 100
    strength: float = 1.0
    smoothing: float = 0.9
    floor: float = 0.01
    most_change: float = 0.1
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
        listed = _listed({name: f"{loss:.4g}" for name, loss in self.losses.items()})
        return f"FollowLosses: {listed}" if self.losses else "FollowLosses"

    def _by_source(self, mix: Mix) -> dict[str, float]:
        """Return the losses by source; of a source with several datasets the mean over its rows, as far as known."""
        found = {name: loss for name, loss in self.losses.items() if name in mix.names}
        for source, datasets in zip(mix.names, mix.datasets, strict=False):
            known = {name: share for name, share in datasets.items() if name in self.losses and share > 0}
            if known:
                total = math.fsum(known.values())
                found[source] = math.fsum(self.losses[name] * share for name, share in known.items()) / total
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
    then (``lading.train.steering`` says how). Where no source is more than 5 samples from its target, which is what
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
        """Return the shares that make up for what is missing."""
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


class MixtureScheduler:
    """Adjust a loader's sampling probabilities by what a tracker saw.

    Args:
        loader: A Lading loader with weights.
        tracker: A ``BatchTracker``, updated by the loader, a ``RepeatingLoader`` or by hand, on every rank alike.
        policy: What turns counts into weights, such as ``SteerToShares``.

    Call ``step()`` once a training step, on every rank; save ``state_dict()`` beside the loader's.
    """

    def __init__(self, loader: EngineLoader, tracker: BatchTracker, policy: Policy) -> None:
        if not hasattr(loader, "reweight"):
            raise MixtureError(
                f"MixtureScheduler changes the weights of a Lading loader, found a {type(loader).__name__}, whose "
                "order is its sampler's. Make the loader with lading.Loader(sources, batch_size, weights=...)."
            )
        self.loader, self.tracker, self.policy = loader, tracker, policy
        self.counts = np.zeros(len(loader.plan.datasets), dtype=np.int64)
        self._last, self._resets = self._tracked(), self.tracker.n_resets

    @property
    def probabilities(self) -> dict[str, float]:
        """The sampling probabilities that hold from where a change would act now."""
        mix = mix_at(self.loader.plan, self.loader.step)
        return dict(zip(mix.names, mix.weights, strict=True))

    def step(self, losses: Mapping[str, float] | None = None) -> dict[str, float] | None:
        """Read the tracker; every ``policy.every_steps`` choose weights and apply them.

        Args:
            losses: Per-dataset losses of the step, all-reduced, for policies that follow them.

        Returns:
            The new probabilities, or None if nothing changed.
        """
        self._count()
        observe = getattr(self.policy, "observe", None)
        if losses is not None and observe is not None:
            observe(losses)
        if self.loader.step % self.policy.every_steps:
            return None
        weights = self.policy(replace(mix_at(self.loader.plan, self.loader.step), counts=tuple(self.counts.tolist())))
        if weights is None:
            return None
        self.loader.reweight(weights, reason=f"{reason_of(self.policy)} on tracked counts")
        names = self.loader.plan.source_names
        return dict(zip(names, named_weights(weights, names), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of all ranks and the policy's state, JSON-able, the same on every rank."""
        return {"counts": self.counts.tolist(), "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume where a state was taken, on any number of ranks."""
        self.counts = np.array(state["counts"], dtype=np.int64)
        self._last, self._resets = self._tracked(), self.tracker.n_resets
        self.policy.load_state_dict(state["policy"])

    def _tracked(self) -> np.ndarray:
        """Return what the tracker counted, by source: weights are of sources, trackers count datasets."""
        seen, plan = self.tracker.n_samples_per_dataset, self.loader.plan
        counts = np.zeros(len(plan.datasets), dtype=np.int64)
        for number in plan.parts.numbers:
            counts[plan.parts.source(number)] += seen.get(number, 0)
        return counts

    def _count(self) -> None:
        """Add what the trackers of all ranks counted since the last time."""
        now = self._tracked()
        was_reset = self.tracker.n_resets > self._resets
        self.counts = self.counts + _added_over_ranks(now if was_reset else now - self._last)
        self._last, self._resets = now, self.tracker.n_resets


def _added_over_ranks(counts: np.ndarray) -> np.ndarray:
    if process_group() is None:
        return counts
    from lading.train.metrics.torch import added_over_ranks  # only where torch is loaded already

    return added_over_ranks(counts)
