"""A plan dressed as torch's ``DistributedSampler``.

Frameworks leave a ``DistributedSampler`` in peace, ask it for the rank, and
tell it the epoch. This one is a view of its loader: it holds nothing.

The plan of a loader dressed as torch's ``RandomSampler`` or ``SequentialSampler``.

Code written for torch asks ``isinstance(loader.sampler, RandomSampler)``.
These are views: the order is the plan's, and there is nothing in them to lose.

What a framework means when it rebuilds a loader around a sampler.

Lightning re-instantiates a ``DataLoader`` from its arguments to predict (around
a batch sampler that notes indices) and to overfit (around a sequential sampler).
Both are understood; any other sampler would replace the plan and is refused.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

from lading.errors import LoaderError
from lading.identity import Bill

if TYPE_CHECKING:
    from lading.loader.torch.loader import Loader


class PlanSampler(DistributedSampler[Any]):
    """Which samples this rank gets in the coming round, by number in the concatenation of the sources."""

    def __init__(self, loader: Loader) -> None:
        # DistributedSampler's own __init__ asks for a process group, which may not exist yet.
        self._loader = weakref.ref(loader)  # weak: a loader that nobody holds ends its workers at once
        self.dataset = loader.dataset
        self.seed = loader.seed
        self.shuffle = loader.plan_shuffle != "none"
        self.drop_last = loader.drop_last

    @property
    def loader(self) -> Loader:
        """The loader this is a view of."""
        loader = self._loader()
        if loader is None:
            raise LoaderError("the loader of this sampler is gone: a sampler is a view. Keep the loader.")
        return loader

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loader": self.loader}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({**state, "_loader": weakref.ref(state["_loader"])})

    @property
    def rank(self) -> int:  # type: ignore[override]
        """This rank."""
        return self.loader.world.rank

    @property
    def num_replicas(self) -> int:  # type: ignore[override]
        """Number of ranks."""
        return self.loader.world.world_size

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The epoch the loader stands in."""
        return self.loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Tell the loader the epoch; see ``Loader.set_epoch``."""
        self.loader.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        starts = np.concatenate([[0], np.cumsum(self.loader.plan.lengths)])
        for step in self.loader.round_steps():
            bill = self.loader.share_of(step)
            yield from (starts[bill.source_idx] + bill.rows).tolist()

    def __len__(self) -> int:
        steps = self.loader.round_steps()
        first, last = len(self.loader.share_of(steps[0])), len(self.loader.share_of(steps[-1]))
        return (len(steps) - 1) * first + last


class PlannedRandomSampler(RandomSampler):
    """Samples in the plan's shuffled order."""

    def __init__(self, planned: PlanSampler) -> None:
        super().__init__(cast(Sized, planned.dataset))
        self.planned = planned

    def __iter__(self) -> Iterator[int]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


class PlannedSequentialSampler(SequentialSampler):
    """Samples from the first to the last."""

    def __init__(self, planned: PlanSampler) -> None:
        super().__init__(cast(Sized, planned.dataset))
        self.planned = planned

    def __iter__(self) -> Iterator[int]:
        return iter(self.planned)

    def __len__(self) -> int:
        return len(self.planned)


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
        original = inner.loader
        return original.rank_batch_size, original.shuffle, bool(batch_sampler.drop_last)
    if isinstance(sampler, SequentialSampler) and batch_sampler is None:
        return asked[0], False, asked[2]
    if isinstance(sampler, PlanSampler) and batch_sampler is None:
        return asked
    found = type(sampler if sampler is not None else batch_sampler).__name__
    raise LoaderError(
        f"a {found} was injected into a Lading loader, whose order is its plan's. Pass use_distributed_sampler=False "
        "to the Trainer, or hand it lading.train.lightning.plain(loader), which frameworks leave alone."
    )


def note_indices(loader: Loader, bill: Bill) -> None:
    """Tell a framework's index-noting batch sampler what a batch held."""
    seen = getattr(loader.batch_sampler, "seen_batch_indices", None)
    if seen is not None:
        seen.append(bill.rows.tolist())
