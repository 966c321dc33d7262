"""From a loader's arguments to its plan.

sources, batch size, seed, weights, schedule ... ─▶ make_plan ─▶ Plan
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lading.errors import MixtureError
from lading.loader.describe import describe
from lading.order.dataset import Dataset
from lading.order.mixture import MixtureRequest, mixture
from lading.order.mixture_spec import MixtureSpec
from lading.order.plan import Plan
from lading.source.protocol import Located

if TYPE_CHECKING:
    from lading.loader.loader import Loader


def make_plan(loader: Loader, first_batch: int | None = None) -> Plan:
    """Return the plan that a loader's arguments describe.

    Args:
        loader: The loader.
        first_batch: Global batch size a resumed run began with: its schedule counts in those steps.
    """
    datasets = tuple(
        Dataset(
            name,
            len(r.source),
            describe(r, loader.fingerprint),
            mean_tokens_of(name, r.source, loader.mean_tokens),
            location_of(r.source),
        )
        for name, r in loader.named_readers()
    )
    batch = loader.global_batch_size or (loader.rank_batch_size or 0) * loader.world.world_size
    told = loader.weight_unit, loader.stopping, loader.epoch_samples, loader.lookahead_steps
    request = MixtureRequest(loader.weights, loader.schedule, loader.temperature, *told)
    return Plan(
        datasets=datasets,
        global_batch_size=batch,
        seed=loader.seed,
        shuffle=loader.plan_shuffle,
        block_samples=loader.block_samples,
        drop_last=loader.drop_last,
        chunk_batches=loader.chunk_batches,
        mixture=planned_mixture(
            datasets, loader.mixture, request, loader.policy, first_batch or batch, loader.drop_last
        ),
    )


def planned_mixture(
    datasets: Sequence[Dataset], ready: Any, request: MixtureRequest, policy: Any, batch: int, drop_last: bool
) -> MixtureSpec | None:
    """Return the mixture of a loader's plan, or None where every sample comes once an epoch.

    Args:
        datasets: The datasets of the plan.
        ready: A ``MixtureSpec`` or ``MixtureRequest`` given instead of weights.
        request: What the loader's arguments ask for.
        policy: Chooses weights later; without any to begin with, the lengths are the weights.
        batch: Samples of a global batch.
        drop_last: Whether incomplete global batches are dropped.
    """
    if ready is not None and request != MixtureRequest():
        raise MixtureError("mixture= was given beside weights, schedule or their like: expected one of them.")
    if isinstance(ready, MixtureSpec):
        return ready
    request = ready or request
    if not request.is_mixture and policy is not None:
        request = replace(request, temperature=1.0)
    if not request.is_mixture:
        if request != MixtureRequest():
            raise MixtureError(
                "stopping, epoch_samples, weight_unit and lookahead_steps are about weights, and there are none: every "
                "sample comes once an epoch. Pass weights=, schedule= or temperature=, or leave them out."
            )
        return None
    return mixture(datasets, request, batch, drop_last)


def first_batch(state: Mapping[str, Any]) -> int | None:
    """Return the global batch size a run began with, as far as a state says it; schedules count in its steps."""
    try:
        return int(json.loads(state["summary"])["global_batch_size"])
    except (KeyError, TypeError, ValueError):
        return None  # a damaged state is named where it is restored


def mean_tokens_of(name: str, source: Any, given: Mapping[str, float] | None) -> float | None:
    """Return the mean tokens per sample of a source: as given, or as the source says itself."""
    value = given[name] if given is not None and name in given else getattr(source, "mean_tokens", None)
    return None if value is None else float(value)


def location_of(source: Any) -> str | None:
    """Return where a source says that it lies, for records."""
    return source.stored_at() if isinstance(source, Located) else None
