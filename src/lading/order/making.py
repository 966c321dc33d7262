"""What a plan is made of: its fields from what the user gives, its clock and its order from its fields; and what
its fields must be, and which go together. And what resuming at a step needs of its events: one ``ResumeBase`` for all
that have acted, however many they were.

events   reweight · block · rebatch · reweight · reweight │ step │ reweight
         ╰──────── pace · stage · blocked · masked · adapted ╯        ╰ kept as it is
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lading.errors import MixtureError, PlanError
from lading.order.clock import MAX_POSITION, Batching, Clock, Location
from lading.order.dataset import Part, PlannedDataset, datasets_of
from lading.order.event import Block, Event, Mask, Rebatch, ResumeBase, Reweight
from lading.order.mixture import spec as mixtures
from lading.order.mixture.order import Mixed, Passes, timeline
from lading.order.mixture.spec import MixtureSpec
from lading.order.permutation import MAX_SEED
from lading.order.shuffle import SHUFFLES, Order, Shuffled
from lading.order.substitute import by_dataset, stated
from lading.runtime.fields import whole

if TYPE_CHECKING:
    from lading.order.adaptation import PlanView
    from lading.order.mixture.request import Mixture
    from lading.order.sample_weights import Weighted


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
    if mixture is not None and not isinstance(mixture, MixtureSpec):
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
        from lading.order.batch_schedule import planned_sizes  # few runs have one

        epoch = sum(d.length for d in datasets)
        if mixture is not None:
            epoch = mixture.epoch_samples if isinstance(mixture, MixtureSpec) else mixture.epoch(datasets)
        gapless = mixture is not None and mixture.stopping == "restart"
        sizes = planned_sizes(batch_schedule, epoch, drop_last=drop_last, gapless=gapless)
        planned["batch_schedule"] = sizes if len(sizes) > 1 else ()
    if mixture is not None and not isinstance(mixture, MixtureSpec):
        mixture = mixture.planned(datasets, sizes, drop_last)
    return {**more, **planned, "datasets": datasets, "global_batch_size": sizes[0][1], "mixture": mixture}


def weights_of(plan: PlanView) -> Weighted:
    """Return the weights of a plan's samples, in the order of its sources."""
    from lading.order.sample_weights import planned_weights  # few runs weight their samples

    return planned_weights(plan.sample_weights, plan)


def clock_of(plan: PlanView) -> Clock:
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
        limit=mixtures.MAX_POSITION if drawn else MAX_POSITION,
        base=plan.base,
    )


def order_of(plan: PlanView) -> Order:
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


def check(plan: PlanView) -> None:
    """Refuse fields that make no plan, or do not go together."""
    lengths = [d.length for d in plan.datasets]
    names_of_sources = [d.name for d in plan.datasets]
    if not lengths or min(lengths) < 0 or sum(lengths) == 0:
        found = ", ".join(f"{d.name!r} {d.length}" for d in plan.datasets) or "no dataset"
        raise PlanError(f"a plan needs at least one sample: found {found}. Check the sources.")
    names = [part.name for d in plan.datasets for part in d.parts] or names_of_sources
    if len(set(names)) != len(names) or len(set(names_of_sources)) != len(lengths):
        raise PlanError(f"datasets need different names: found {', '.join(map(repr, names))}.")
    if sum(lengths) > MAX_POSITION:
        raise PlanError(f"{sum(lengths)} samples are more than a plan can hold: expected at most 2**62.")
    for field, least in _INTEGERS.items():
        value = getattr(plan, field)
        if value is None and field == "chunk_batches":
            continue
        number = whole(value)
        if number is None or number < least or (field == "seed" and number > MAX_SEED):
            expected = "an integer from 0 to 2**64 - 1" if field == "seed" else f"an integer of at least {least}"
            raise PlanError(f"{field} is {value!r}: expected {expected}.")
        object.__setattr__(plan, field, number)  # NumPy's integers become Python's, so that plans stay JSON
    if plan.shuffle not in SHUFFLES:
        raise PlanError(f"shuffle is {plan.shuffle!r}: expected one of {', '.join(map(repr, SHUFFLES))}.")
    if plan.sample_weights and plan.adaptation is not None:
        other = plan.adaptation.key.replace("_", " ")
        raise PlanError(f"sample_weights and {other} were both given: each says which samples come. Leave one out.")
    _check_schedule(plan, "batch_schedule", "global_batch_size", "Make the plan with Plan.make(batch_schedule=...).")
    _check_schedule(plan, "chunk_schedule", "chunk_batches", "Make it with lading.Chunks.")


_INTEGERS = {"global_batch_size": 1, "chunk_batches": 1, "window_samples": 1, "lookahead_steps": 0, "seed": 0}


def _check_schedule(plan: PlanView, field: str, of: str, way_out: str) -> None:
    """Refuse pairs (where, size) that do not ascend from (0, first size), with sizes of at least 1."""
    pairs, first = getattr(plan, field), getattr(plan, of)
    starts = [start for start, _ in pairs]
    ascending = starts[:1] == [0] and all(a < b for a, b in itertools.pairwise(starts))
    if pairs and not (ascending and pairs[0][1] == first and min(size for _, size in pairs) >= 1):
        place = "step" if field == "batch_schedule" else "chunk"
        raise PlanError(
            f"{field} is {pairs[:5]} with {of} {first}: expected ({place}, size) pairs in order, the first (0, {of}). "
            f"{way_out}"
        )


def events_from(plan: PlanView, step: int) -> tuple[Event, ...]:
    """Return the events that resuming at a step needs: those that have acted become one ``ResumeBase``."""
    events, clock, order = plan.events, plan.clock, plan.order
    at = clock.locate(step)
    past, later = [e for e in events if _has_acted(e, at)], [e for e in events if not _has_acted(e, at)]
    # Of sizes that are to act at one step the last holds.
    sizes = {e.step: e for e in later if isinstance(e, Rebatch)}
    later = [e for e in later if not isinstance(e, Rebatch) or sizes[e.step] is e]
    if not past:
        return tuple(later)
    resized = any(isinstance(e, Rebatch) or (isinstance(e, ResumeBase) and e.pace) for e in past)
    reweighted = any(isinstance(e, Reweight) or (isinstance(e, ResumeBase) and e.stage) for e in past)
    pace = clock.pace_at(step) if resized else None
    stage = None
    if isinstance(order, Mixed) and clock.gapless and (resized or reweighted):
        stage = order.stage_at(at.position)
    known = [clock.first_step, *(e.step for e in past if isinstance(e, Block | Mask))]
    known += [] if pace is None else [pace.step]
    known += [] if stage is None else [clock.step_from(stage.start)]
    kept = None if plan.adaptation is None else plan.adaptation.kept(past, order, clock, at)
    adapted, since = kept or (None, 0)
    blocked, masked = by_dataset(stated(Block, past)), by_dataset(stated(Mask, past))
    base = ResumeBase(step, at.position, max(*known, since), pace, stage, blocked, adapted, masked)
    return (base, *later)


def _has_acted(event: Event, at: Location) -> bool:
    """Say whether an event acts at or before a step."""
    if isinstance(event, Reweight):
        return event.position <= at.position
    return event.step <= at.step
