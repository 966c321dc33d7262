"""What the fields of a plan must be, and which go together."""

from __future__ import annotations

import itertools

from lading.errors import PlanError
from lading.order.clock import MAX_POSITION
from lading.order.permutation import MAX_SEED
from lading.order.plan_json import PlanFields
from lading.order.shuffle import SHUFFLES
from lading.runtime.numbers import whole


def check(plan: PlanFields) -> None:
    """Refuse fields that make no plan, or do not go together."""
    lengths = [d.length for d in plan.datasets]
    names_of_sources = [d.name for d in plan.datasets]
    if not lengths or any(n < 0 for n in lengths) or sum(lengths) == 0:
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
    _check_sizes(plan)
    _check_chunks(plan)


_INTEGERS = {"global_batch_size": 1, "chunk_batches": 1, "window_samples": 1, "lookahead_steps": 0, "seed": 0}


def _check_chunks(plan: PlanFields) -> None:
    chunks = plan.chunk_schedule
    if chunks:
        starts = [chunk for chunk, _ in chunks]
        ascending = starts[0] == 0 and all(a < b for a, b in itertools.pairwise(starts))
        if not ascending or chunks[0][1] != plan.chunk_batches or min(n for _, n in chunks) < 1:
            raise PlanError(
                f"chunk_schedule is {chunks[:5]} with chunk_batches {plan.chunk_batches}: expected (chunk, batches) "
                "pairs in order, the first (0, chunk_batches)."
            )


def _check_sizes(plan: PlanFields) -> None:
    sizes = plan.batch_schedule
    if not sizes:
        return
    steps = [step for step, _ in sizes]
    ascending = steps[0] == 0 and all(a < b for a, b in itertools.pairwise(steps))
    if not ascending or sizes[0][1] != plan.global_batch_size or min(size for _, size in sizes) < 1:
        raise PlanError(
            f"batch_schedule is {sizes[:5]} with global_batch_size {plan.global_batch_size}: expected (step, size) "
            "pairs in order, the first (0, global_batch_size). Make the plan with Plan.make(batch_schedule=...)."
        )
