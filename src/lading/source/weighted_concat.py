"""Several datasets end to end, each as many times as its weight says.

weights      2.0          0.5
position     0 1 2 3 4 5  6 7
dataset_idx  0 0 0 0 0 0  1 1
idx          0 1 2 0 1 2  0 1      of datasets with 3 and 4 samples
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.order.dataset import Part
from lading.source.tagged import name_keys, named, provides_names


class WeightedConcatDataset:
    """Datasets end to end, each contributing ``ceil(length * weight)`` samples: whole copies, then its head.

    >>> data = WeightedConcatDataset([[{"x": 1}, {"x": 2}], [{"x": 7}]], [1.5, 1])
    >>> data[2], data[-1]
    ({'x': 1, 'idx': 0, 'dataset_idx': 0}, {'x': 7, 'idx': 0, 'dataset_idx': 1})

    Args:
        datasets: Anything with ``__len__`` and ``__getitem__``.
        weights: One for each dataset; 0 leaves a dataset out, above 1 repeats it.
        global_idx: Make ``idx`` the position in the whole concatenation instead of the index inside its own dataset.
        names: Other keys for ``idx`` or ``dataset_idx``, where samples have columns of these names.

    Attributes:
        provides_names: Says that samples already carry their names.
    """

    provides_names = True

    def __init__(
        self,
        datasets: Sequence[Any],
        weights: Sequence[float],
        *,
        global_idx: bool = False,
        names: Mapping[str, str] | None = None,
    ) -> None:
        _check(datasets, weights)
        self.datasets = list(datasets)
        self.weights = [float(weight) for weight in weights]
        self.global_idx = global_idx
        self.names = dict(names or {})
        self._keys = name_keys(names)
        self.lengths = [math.ceil(len(d) * w) for d, w in zip(self.datasets, self.weights, strict=True)]
        self._ends = np.cumsum(self.lengths)

    def __len__(self) -> int:
        """Return the number of samples of all datasets together, copies included."""
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        """Return a sample; dicts gain ``idx`` and ``dataset_idx``. Negative indices count from the end."""
        position, size = int(index), len(self)
        if not -size <= position < size:
            raise IndexError(f"Index {position} out of range [0, {size})")
        position %= size
        dataset, place = self._locate(position)
        sample = self.datasets[dataset][place]
        if not isinstance(sample, Mapping):
            return sample
        added = {
            self._keys["idx"]: position if self.global_idx else place,
            self._keys["dataset_idx"]: dataset,
        }
        return named(sample, added, replaces=provides_names(self.datasets[dataset]))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The datasets, each with its rows; their samples carry these numbers and indices."""
        found = []
        for number, (dataset, rows, end) in enumerate(zip(self.datasets, self.lengths, self._ends, strict=True)):
            samples, first = (rows, int(end) - rows) if self.global_idx else (len(dataset), 0)
            found.append(Part(number, f"[{number}]", rows, samples, first))
        return tuple(found)

    def names_at(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return dataset numbers and indices of samples, without loading them."""
        positions = np.where(indices < 0, indices + len(self), indices)
        datasets = np.searchsorted(self._ends, positions, side="right")
        starts = self._ends[datasets] - np.array(self.lengths)[datasets]
        places = (positions - starts) % np.array([max(len(d), 1) for d in self.datasets])[datasets]
        return datasets.astype(np.int32), positions if self.global_idx else places

    def set_epoch(self, epoch: int) -> None:
        """Tell the datasets the epoch, where they want to know."""
        for dataset in self.datasets:
            tell = getattr(dataset, "set_epoch", None)
            if tell is not None:
                tell(epoch)

    def _locate(self, position: int) -> tuple[int, int]:
        dataset = int(np.searchsorted(self._ends, position, side="right"))
        start = int(self._ends[dataset]) - self.lengths[dataset]
        return dataset, (position - start) % len(self.datasets[dataset])


def _check(datasets: Sequence[Any], weights: Sequence[float]) -> None:
    if len(datasets) == 0 or len(weights) == 0:
        raise SourceError(
            f"{len(datasets)} datasets and {len(weights)} weights: expected a dataset at least, with a weight."
        )
    if len(datasets) != len(weights):
        raise SourceError(f"{len(datasets)} datasets but {len(weights)} weights: expected a weight for each dataset.")
    for number, weight in enumerate(weights):
        if not (weight >= 0 and math.isfinite(weight)):
            raise SourceError(f"the weight of dataset {number} is {weight}: expected a number of at least 0.")
