"""A plan dressed as torch's ``DistributedSampler``.

Frameworks leave a ``DistributedSampler`` in peace, ask it for the rank, and
tell it the epoch. This one is a view of its loader: it holds nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import DistributedSampler

from lading.errors import LoaderError

if TYPE_CHECKING:
    from lading.loader.loader import Loader


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
            yield from (starts[bill.dataset_idx] + bill.idx).tolist()

    def __len__(self) -> int:
        steps = self.loader.round_steps()
        first, last = len(self.loader.share_of(steps[0])), len(self.loader.share_of(steps[-1]))
        return (len(steps) - 1) * first + last
