"""Some samples of a JASPER split, still gathered a whole batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Subset

from lading.source.spec import BatchSpec

if TYPE_CHECKING:
    from lading.source.jasper import JASPERSteeringDataset


class ClusterSubset(Subset[dict[str, Tensor]]):
    """A torch ``Subset`` of a JASPER dataset that keeps ``take``, names and spec.

    Args:
        dataset: The whole split.
        indices: Samples of the split that belong to the subset.
    """

    dataset: JASPERSteeringDataset
    wants_keys = False  # the epoch and the pair are enough

    def __init__(self, dataset: JASPERSteeringDataset, indices: Sequence[int]) -> None:
        super().__init__(dataset, indices)
        self._places = np.asarray(indices, dtype=np.int64)

    @property
    def pair_numbers(self) -> Tensor:
        """Pair of each sample of the subset."""
        return self.dataset.pair_numbers[self._places]

    def take(self, indices: ArrayLike) -> dict[str, Tensor]:
        """Return a whole batch."""
        return self.dataset.take(self._in_split(indices))

    def take_keyed(self, indices: ArrayLike, *, epoch: int, keys: Any = None) -> dict[str, Tensor]:
        """Return a whole batch as it is in an epoch."""
        return self.dataset.take_keyed(self._in_split(indices), epoch=epoch)

    def item_keyed(self, index: int, *, epoch: int, key: int | None = None) -> dict[str, Tensor]:
        """Return one sample as it is in an epoch."""
        return self.dataset.item_keyed(int(self._in_split([index])[0]), epoch=epoch)

    def set_epoch(self, epoch: int) -> None:
        """Move the curriculum of the whole split to an epoch."""
        self.dataset.set_epoch(epoch)

    def describe(self, index: int) -> str:
        """Name a sample by its index in the split and by its pair."""
        return self.dataset.describe(int(self._places[index]))

    def file_of(self, index: int) -> str:
        """Return where a sample came from, for errors."""
        return self.dataset.file_of(int(self._places[index]))

    def fingerprint(self) -> dict[str, Any]:
        """Describe the content of the split and what was chosen of it."""
        return {**self.dataset.fingerprint(), "samples": self._places.tolist()}

    def spec(self) -> BatchSpec:
        """Return what a batch must look like."""
        return self.dataset.spec()

    def _in_split(self, indices: ArrayLike) -> NDArray[np.int64]:
        wanted = np.asarray(indices, dtype=np.int64)
        outside = wanted[(wanted < 0) | (wanted >= len(self._places))]
        if len(outside):
            raise IndexError(f"Index {outside[0]} out of range [0, {len(self._places)})")
        return self._places[wanted]
