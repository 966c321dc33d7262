"""Weights that change while a loader runs: by hand, or by a policy.

    batch of step s yielded ─▶ reweight ─▶ acts at step s + lookahead_steps + 1

What was prefetched is never taken back: at most ``lookahead_steps`` batches are
on their way, and the change comes after them. So all ranks agree without
talking, as long as each asks for the same after the same step, which is checked
where a process group exists. The change is an event of the plan: in the
loader's state, in the ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lading.errors import LadingError, LoaderError, MixtureError, WorldError
from lading.identity import Bill
from lading.loader.agreeing import agree_on_decision, announcing
from lading.loader.note import Observed, Trackers
from lading.loader.policy import Mix, WeightPolicy, load_policy, reason_of
from lading.order.event import Reweight
from lading.order.mixture.order import Mixed
from lading.order.mixture.request import as_integers
from lading.order.mixture.spec import MixtureSpec, Weights, finite_error, shares
from lading.order.plan import Plan

_WAY_OUT = (
    "Every rank must call it after the same step, with the same weights: all-reduce what they are worked out from. "
    "Nothing was changed."
)


def reweight(engine: Observed, weights: Weights, reason: str = "") -> Reweight | None:
    """Change the weights of a loader's mixture right after what may be prefetched; None where they are the same."""
    plan = engine.plan
    try:
        integers = as_integers(plan.datasets, weights, _running_mixture(plan).unit)
    except LadingError as error:
        # The others may have asked for something sensible and wait: let them know before giving up.
        with contextlib.suppress(WorldError):
            agree_on_decision(engine, "a reweighting", {"refused": str(error)}, _WAY_OUT)
        raise
    acts_at = engine.step + plan.lookahead_steps
    agree_on_decision(engine, "a reweighting", {"acts at": acts_at, "integer weights": integers}, _WAY_OUT)
    event = plan.reweighting(acts_at, integers, reason)
    if event is not None:
        engine.add_event(event)
    return event


def mix_at(plan: Plan, step: int) -> Mix:
    """Return what a policy decides on before a step is yielded."""
    spec = _running_mixture(plan)
    assert isinstance(plan.order, Mixed)
    acts_at = step + plan.lookahead_steps
    weights, counts = plan.order.weights_at(plan.locate(acts_at).position), plan.counts(step)
    means = tuple(d.mean_tokens for d in plan.datasets)
    return Mix(
        step=step,
        names=plan.source_names,
        lengths=plan.lengths,
        mean_tokens=means,
        counts=tuple(counts),
        weights=tuple(_in_unit(shares(weights), means, spec.unit)),
        unit=spec.unit,
        datasets=() if plan.parts.is_plain else tuple(_shares_of_rows(plan, s) for s in range(len(plan.datasets))),
        coming=tuple(then - now for now, then in zip(counts, plan.counts(acts_at), strict=True)),
        batch=plan.clock.batch_at(acts_at),
    )


def _shares_of_rows(plan: Plan, source: int) -> dict[str, float]:
    rows = plan.parts.row_counts(source)
    return {plan.names[number]: count / max(plan.lengths[source], 1) for number, count in rows.items()}


@dataclass
class PolicyRunner:
    """Asks a policy for weights every so many steps, once for each step number: an ``Observer``.

    Attributes:
        last_step: The step it was last asked before.
    """

    policy: WeightPolicy
    last_step: int = -1
    _earlier: dict[str, Any] = field(default_factory=dict, repr=False)
    resizes = False

    def __post_init__(self) -> None:
        if not (isinstance(self.policy, WeightPolicy) and self.policy.every_steps >= 1):
            raise MixtureError(
                f"policy={self.policy!r}: expected a callable with every_steps (at least 1), state_dict and "
                "load_state_dict, such as lading.FollowLosses."
            )

    def begin(self, engine: Observed, step: int) -> None:
        """Do nothing: a policy is asked after a batch."""

    def amended(self, engine: Observed, bill: Bill) -> Bill:
        """Return the bill as it is: weights act where nothing was read yet."""
        return bill

    def noted(self, engine: Observed) -> None:
        """Ask the policy where it is due."""
        step = engine.step
        if step <= self.last_step or step % self.policy.every_steps:
            return
        with announcing(engine, "a reweighting", self.policy):
            self._earlier = self.state(engine.plan, step)
            self.last_step = step
            chosen = self.policy(mix_at(engine.plan, step))
        if chosen is not None:
            reweight(engine, chosen, reason_of(self.policy))

    def validated(self, engine: Observed, found: Mapping[str, Any], trackers: Trackers) -> None:
        """Do nothing: losses are given to the policy itself."""

    def state(self, plan: Plan, step: int) -> dict[str, Any]:
        if self.last_step > step:
            if not self._earlier or self._earlier["last_step"] > step:
                raise LoaderError(
                    f"the policy has chosen weights twice since step {step} (every_steps={self.policy.every_steps}), "
                    "and only what it remembered before the last time is known. Take the state earlier."
                )
            return self._earlier
        return {"kind": type(self.policy).__name__, "last_step": self.last_step, "state": self.policy.state_dict()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Resume where a state was taken; a policy that finds no state of its own begins anew."""
        self.last_step, self._earlier = saved.get("last_step", -1), {}
        if "kind" in saved:
            load_policy(self.policy, saved)


def _running_mixture(plan: Plan) -> MixtureSpec:
    if plan.mixture is None:
        raise MixtureError(
            "this run has no weights that could change: it visits every sample once an epoch. "
            "Pass weights= to the loader."
        )
    if plan.mixture.is_finite:
        raise finite_error(plan.mixture.stopping, "a reweighting")
    return plan.mixture


def _in_unit(sample_shares: list[float], means: tuple[float | None, ...], unit: str) -> list[float]:
    if unit == "samples":
        return sample_shares
    tokens = [share * (mean or 0.0) for share, mean in zip(sample_shares, means, strict=True)]
    return [t / sum(tokens) for t in tokens]
