"""What a plan is made of: its fields from what the user gives, its clock and its order from its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lading.errors import MixtureError, PlanError
from lading.order.adaptive.protocol import AdaptedPlan
from lading.order.batch_schedule import planned_sizes
from lading.order.clock import MAX_POSITION, Batching, Clock
from lading.order.dataset import Part, PlannedDataset, datasets_of
from lading.order.event import Rebatch, Reweight
from lading.order.mixture import weights
from lading.order.mixture.order import Mixed, timeline
from lading.order.mixture.passes import Passes
from lading.order.mixture.request import Mixture
from lading.order.mixture.spec import MixtureSpec
from lading.order.shuffle import Order, Shuffled


def fields_of(
    lengths: Mapping[str, int | Sequence[Part]] | int | Sequence[PlannedDataset],
    batch_size: int | None,
    batch_schedule: Sequence[Any] | None,
    mixture: Mixture | MixtureSpec | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the fields of a plan; the arguments are those of ``Plan.make``."""
    for name in ("weights", "schedule"):
        if name in more:
            raise MixtureError(f"Plan.make has no {name}=: pass mixture=lading.Mixture({name}={name}).")
    datasets = datasets_of(lengths)
    if isinstance(mixture, Mixture):
        datasets = mixture.with_means(datasets)
    if (batch_size is None) == (batch_schedule is None):
        raise PlanError(
            f"batch_size={batch_size!r} and batch_schedule={batch_schedule!r}: expected one of them, "
            "such as batch_schedule=[(0, 32), ('1000ba', 64)]."
        )
    drop_last = more.get("drop_last", False)
    sizes: tuple[tuple[int, int], ...] = () if batch_size is None else ((0, batch_size),)
    planned: dict[str, Any] = {}
    if batch_schedule is not None:
        epoch = sum(d.length for d in datasets) if mixture is None else _epoch(mixture, datasets)
        gapless = mixture is not None and mixture.stopping == "restart"
        sizes = planned_sizes(batch_schedule, epoch, drop_last=drop_last, gapless=gapless)
        planned["batch_schedule"] = sizes if len(sizes) > 1 else ()
    if isinstance(mixture, Mixture):
        mixture = mixture.planned(datasets, sizes, drop_last)
    return {**more, **planned, "datasets": datasets, "global_batch_size": sizes[0][1], "mixture": mixture}


def _epoch(mixture: Mixture | MixtureSpec, datasets: Sequence[PlannedDataset]) -> int:
    return mixture.epoch_samples if isinstance(mixture, MixtureSpec) else mixture.epoch(datasets)


def clock_of(plan: AdaptedPlan) -> Clock:
    """Return the steps, epochs, chunks and positions of a plan."""
    mixture, adaptation = plan.mixture, plan.adaptation
    drawn = mixture is not None or (adaptation is not None and adaptation.gapless)
    return Clock(
        sum(plan.lengths) if mixture is None else mixture.epoch_samples,
        Batching(
            plan.batch_schedule or ((0, plan.global_batch_size),),
            plan.drop_last,
            plan.chunk_batches,
            plan.chunk_schedule[1:],
        ),
        [e for e in plan.events if isinstance(e, Rebatch)],
        gapless=drawn and not (mixture is not None and mixture.is_finite),
        limit=weights.MAX_POSITION if drawn else MAX_POSITION,
        base=plan.base,
    )


def order_of(plan: AdaptedPlan) -> Order:
    """Return the order of a plan: positions to samples and back, batches and blocks left out."""
    if plan.adaptation is not None:
        return plan.adaptation.order(plan)
    shuffled = plan.lengths, plan.seed, plan.shuffle, plan.window_samples, plan.weight_tables
    if plan.mixture is None:
        return Shuffled(*shuffled)
    passes = Passes(*shuffled)
    stage = None if plan.base is None else plan.base.stage
    after = -1 if stage is None or plan.base is None else plan.base.position
    changes = timeline(plan.mixture, [e for e in plan.events if isinstance(e, Reweight)], after)
    return Mixed(passes, plan.mixture, plan.clock, changes, stage)
