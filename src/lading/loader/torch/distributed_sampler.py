"""torch's distributed sampler, able to start in the middle of an epoch.

    order of the epoch    7 2 9 4 0 8 | 1 6 3 5 7 2      2 ranks; the head fills up the end
    consumed              ───── 6 ─────
    rank 0                              1   3   7
    rank 1                                6   5   2

For users of this very order (``numpy.random.default_rng(seed + epoch)``). A
``lading.Loader`` needs none of it: its position is its state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DistributedSampler

from lading.errors import PlanError
from lading.identity import World


class StatefulDistributedSampler(DistributedSampler[Any]):
    """Deal an epoch's samples to ranks; the first epoch begins after what was consumed already.

    >>> sampler = StatefulDistributedSampler(range(6), 2, rank=1, shuffle=False, total_consumed_samples=2)
    >>> list(sampler), len(sampler)
    ([3, 5], 2)
    >>> sampler.set_epoch(1)
    >>> list(sampler), len(sampler)
    ([1, 3, 5], 3)

    Args:
        dataset: Anything with a length.
        num_replicas: Number of ranks; None: the process group's or the environment's.
        rank: This rank; None: likewise.
        shuffle: Shuffle each epoch in its own way.
        seed: Same seed, same order, on every rank.
        drop_last: Cut what does not divide by the ranks; otherwise the head is repeated to fill up.
        epoch: Epoch to start with.
        total_consumed_samples: Samples consumed before, all ranks together: of that first epoch, or of a whole run.
            Each rank skips ``(total_consumed_samples // num_replicas) % num_samples`` of the first epoch, so ranks
            stay equally long. Later epochs are whole; so is a second pass over the first one, where ``set_epoch`` is
            never called.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 42,
        drop_last: bool = False,
        epoch: int = 0,
        total_consumed_samples: int = 0,
    ) -> None:
        if num_replicas is None or rank is None:
            found = World.current()
            num_replicas = found.world_size if num_replicas is None else num_replicas
            rank = found.rank if rank is None else rank
        world = World(rank, num_replicas)  # refuses an impossible rank
        super().__init__(dataset, world.world_size, world.rank, shuffle, seed, drop_last)
        # torch cuts a dataset below one sample a rank to a negative size.
        size = len(dataset) // num_replicas if drop_last else -(-len(dataset) // num_replicas)
        self.num_samples, self.total_size = size, size * num_replicas
        if total_consumed_samples < 0:
            raise PlanError(
                f"total_consumed_samples is {total_consumed_samples}: expected 0 or above, the samples that all ranks "
                "consumed together."
            )
        self.epoch = epoch
        self.total_consumed_samples = total_consumed_samples
        self._first_epoch: int | None = epoch
        self._is_read = False

    def __iter__(self) -> Iterator[int]:
        """Yield this rank's samples."""
        if self._is_read:
            self._first_epoch = None
        yield from self._order()[self.rank :: self.num_replicas][self._skipped :].tolist()
        self._is_read = self._is_read or self.epoch == self._first_epoch

    def __len__(self) -> int:
        """Return the number of samples this rank is given."""
        return self.num_samples - self._skipped

    @property
    def _skipped(self) -> int:
        """Samples that each rank skips: only in the first epoch, and only where there are any."""
        if self.epoch != self._first_epoch or self.num_samples == 0:
            return 0
        return self.total_consumed_samples // self.num_replicas % self.num_samples

    def _order(self) -> NDArray[np.int64]:
        size = len(self.dataset)  # type: ignore[arg-type]
        order = np.arange(size)
        if self.shuffle:
            order = np.random.default_rng(self.seed + self.epoch).permutation(size)
        return np.resize(order, self.total_size)  # cuts, or repeats the head as often as it takes
