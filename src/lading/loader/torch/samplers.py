"""A plan dressed as torch's samplers, and what a framework means when it rebuilds a loader around a sampler.

Frameworks leave a ``DistributedSampler`` in peace, ask it for the rank, and
set its epoch. This one is a view of the engine: it holds nothing.

Code written for torch asks ``isinstance(loader.sampler, RandomSampler)``.
These are views: the order is the plan's, and there is nothing in them to lose.

Lightning re-instantiates a ``DataLoader`` from its arguments to predict (around
a batch sampler that notes indices) and to overfit (around a sequential sampler).
Both are understood; any other sampler would replace the plan and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any, cast

import numpy as np
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler, WeightedRandomSampler

from lading.errors import LoaderError
from lading.identity import Bill
from lading.loader.engine import Engine


class PlanSampler(DistributedSampler[Any]):
    """Which samples this rank gets in the coming iteration, by number in the concatenation of the sources.

    Args:
        engine: Plan, cursor and world of the loader.
        dataset: What the loader shows as its dataset.
    """

    def __init__(self, engine: Engine, dataset: Any) -> None:
        # DistributedSampler's own __init__ asks for a process group, which may not exist yet.
        self.engine, self.dataset = engine, dataset
        self.seed, self.drop_last = engine.request.seed, engine.request.drop_last
        self.shuffle = engine.request.plan_shuffle != "none"

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This rank."""
        return self.engine.world.rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """Number of ranks."""
        return self.engine.world.world_size

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch of the next step."""
        return self.engine.plan.locate(self.engine.step).epoch

    def set_epoch(self, epoch: int) -> None:
        """Move the loader to an epoch; see ``Loader.set_epoch``."""
        self.engine.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        for step in self.engine.iteration_steps():
            yield from _numbers(self.engine, self.engine.share_of(step))

    def __len__(self) -> int:
        steps = self.engine.iteration_steps()
        if self.engine.plan.batch_schedule:
            return sum(len(self.engine.share_of(step)) for step in steps)
        first, last = len(self.engine.share_of(steps[0])), len(self.engine.share_of(steps[-1]))
        return (len(steps) - 1) * first + last


class _Planned:
    """The numbers of a ``PlanSampler``, for those who ask of which kind a sampler is."""

    def __init__(self, planned: PlanSampler) -> None:
        super().__init__(cast(Sized, planned.dataset))  # type: ignore[call-arg]
        self.planned = planned

    def __iter__(self) -> Iterator[int]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


class PlannedRandomSampler(_Planned, RandomSampler):
    """Samples in the plan's shuffled order."""


class PlannedSequentialSampler(_Planned, SequentialSampler):
    """Samples from the first to the last."""


def undistributed(planned: Any) -> Any:
    """Return the sampler torch would have made for one process."""
    return PlannedRandomSampler(planned) if planned.shuffle else PlannedSequentialSampler(planned)


Sizes = tuple[int | None, bool | str, bool]


def meaning(sampler: Any, batch_sampler: Any, asked: Sizes) -> Sizes:
    """Return (batch_size, shuffle, drop_last) as meant by an injected sampler."""
    inner = getattr(batch_sampler, "sampler", None)
    inner = getattr(inner, "planned", inner)  # create_loader dresses the plan as a Random- or SequentialSampler
    sampler = getattr(sampler, "planned", sampler)
    if isinstance(inner, PlanSampler):
        original = inner.engine.request
        return original.batch_size, original.shuffle, bool(batch_sampler.drop_last)
    if isinstance(inner, SequentialSampler):
        return batch_sampler.batch_size, False, bool(batch_sampler.drop_last)
    if isinstance(sampler, SequentialSampler) and batch_sampler is None:
        return asked[0], False, asked[2]
    if isinstance(sampler, PlanSampler) and batch_sampler is None:
        return asked
    found = type(sampler if sampler is not None else batch_sampler).__name__
    if isinstance(sampler, WeightedRandomSampler):
        raise LoaderError(f"a {found} was given: expected sample_weights=weights, which plans what it would draw.")
    raise LoaderError(
        f"a {found} was injected into a Lading loader, whose order is its plan's. Pass use_distributed_sampler=False "
        "to the Trainer, or give it lading.train.lightning.plain(loader), which frameworks leave alone."
    )


def index_log(batch_sampler: Any, engine: Engine) -> Callable[[Bill], None] | None:
    """Return what notes the samples of each batch where Lightning predicts: around a wrapper that is no batch sampler.

    The wrapper would note them while it is iterated over; a plan is not pulled from it.
    """
    if batch_sampler is None or isinstance(batch_sampler, BatchSampler):
        return None
    batch_sampler.seen_batch_indices = []
    # Looked up at each batch: Lightning replaces the list.
    return lambda bill: batch_sampler.seen_batch_indices.append(_numbers(engine, bill))


def _numbers(engine: Engine, bill: Bill) -> list[int]:
    """Return the samples of a bill by number in the concatenation of the sources."""
    starts = np.concatenate([[0], np.cumsum(engine.plan.lengths)])
    return cast(list[int], (starts[bill.source_idx] + bill.rows).tolist())
