"""Steer a mixture by what a ``BatchTracker`` saw.

    tracker.n_samples_per_dataset ─▶ scheduler.step() ─▶ probabilities ─▶ loader.reweight

What is new on each rank is added up over all ranks at every step,
so all ranks choose alike and the state is the same everywhere. The tracker may
be reset right after a step of the scheduler, as often as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lading.errors import MixtureError
from lading.identity.world import process_group
from lading.ledger.tracker.tracker import BatchTracker
from lading.loader.base import EngineLoader
from lading.loader.policy import WeightPolicy, reason_of
from lading.loader.reweighting import mix_at
from lading.order.mixture.spec import named_weights


class MixtureScheduler:
    """Adjust a loader's sampling probabilities by what a tracker saw.

    Args:
        loader: A Lading loader with weights.
        tracker: A ``BatchTracker``, updated by the loader, a ``RepeatingLoader`` or by hand, on every rank alike.
        policy: What turns counts into weights, such as ``SteerToShares``.

    Call ``step()`` once a training step, on every rank; save ``state_dict()`` beside the loader's.
    """

    def __init__(self, loader: EngineLoader, tracker: BatchTracker, policy: WeightPolicy) -> None:
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
        mix = mix_at(self.loader.plan, self.loader.step)
        weights = self.policy(replace(mix, counts=tuple(self.counts.tolist())))
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
