"""Plug a tracker's mapping into a scheduler that adjusts sampling probabilities on the fly.

    tracker.n_samples_per_dataset ─▶ scheduler.step() ─▶ probabilities ─▶ loader.reweight

For loops that hand their batches to a ``BatchTracker`` and want to steer by
what it saw. What is new on each rank is added up over all ranks at every step,
so all ranks choose alike and the state is the same everywhere. The tracker may
be reset right after a step of the scheduler, as often as one likes.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from lading.loader.reweighting import Mix, Policy, mix_at
from lading.order.plan import Plan
from lading.order.weights import named_weights


class Tracker(Protocol):
    """What is read of a tracker."""

    @property
    def n_samples_per_dataset(self) -> Mapping[int, int]:
        """Samples seen since the last reset, by dataset number."""
        ...

    @property
    def n_resets(self) -> int:
        """How often it was reset."""
        ...


class Reweightable(Protocol):
    """What is asked of a loader."""

    @property
    def plan(self) -> Plan:
        """The order of the run."""
        ...

    @property
    def step(self) -> int:
        """The next step."""
        ...

    def reweight(self, weights: Any, reason: str = "") -> Any:
        """Change the weights."""
        ...


class MixtureScheduler:
    """Adjust a loader's sampling probabilities by what a tracker saw.

    Args:
        loader: A Lading loader with weights.
        tracker: A ``BatchTracker``, updated by the loader, a ``RepeatingLoader`` or by hand, on every rank alike.
        policy: What turns counts into weights, such as ``SteerToShares``.

    Call ``step()`` once a training step, on every rank; save ``state_dict()`` beside the loader's.
    """

    def __init__(self, loader: Reweightable, tracker: Tracker, policy: Policy) -> None:
        self.loader, self.tracker, self.policy = loader, tracker, policy
        self.counts = np.zeros(len(loader.plan.names), dtype=np.int64)
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
        weights = self.policy(self._mix())
        if weights is None:
            return None
        self.loader.reweight(weights, reason=f"{type(self.policy).__name__} on tracked counts")
        names = self.loader.plan.names
        return dict(zip(names, named_weights(weights, names), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of all ranks and the policy's state, JSON-able, the same on every rank."""
        return {"counts": self.counts.tolist(), "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken, on any number of ranks."""
        self.counts = np.array(state["counts"], dtype=np.int64)
        self._last, self._resets = self._tracked(), self.tracker.n_resets
        self.policy.load_state_dict(state["policy"])

    def _tracked(self) -> np.ndarray:
        seen = self.tracker.n_samples_per_dataset
        return np.array([seen.get(d, 0) for d in range(len(self.loader.plan.names))], dtype=np.int64)

    def _count(self) -> None:
        """Add what the trackers of all ranks counted since the last time."""
        now = self._tracked()
        was_reset = self.tracker.n_resets > self._resets
        self.counts = self.counts + _added_over_ranks(now if was_reset else now - self._last)
        self._last, self._resets = now, self.tracker.n_resets

    def _mix(self) -> Mix:
        return replace(mix_at(self.loader.plan, self.loader.step), counts=tuple(self.counts.tolist()))


def _added_over_ranks(counts: np.ndarray) -> np.ndarray:
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return counts
    from lading.train.metrics_torch import add_over_ranks  # only where torch is loaded already

    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    table = torch.from_numpy(counts).to(device)
    add_over_ranks(table)
    return table.cpu().numpy()
