"""Several datasets end to end, each as many times as its weight says.

    weights      2.0          0.5
    position     0 1 2 3 4 5  6 7
    dataset_idx  0 0 0 0 0 0  1 1
    idx          0 1 2 0 1 2  0 1      of datasets with 3 and 4 samples

NumPy only; yet a torch ``ConcatDataset`` to those who ask, because
``isinstance`` also looks at ``__class__`` (``lading.runtime.torch_class``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lading.errors import SourceError
from lading.identity.bill import DATASET_IDX, IDX
from lading.order.dataset import Part
from lading.runtime.torch_class import restored, torch_class
from lading.source.protocol import notify_epoch
from lading.source.reader import draws_nothing, provides_names
from lading.source.tagged import in_range, name_keys, named


class WeightedConcatDataset:
    """Datasets end to end, each contributing ``ceil(length * weight)`` samples: whole copies, then its head.

    >>> data = WeightedConcatDataset([[{"x": 1}, {"x": 2}], [{"x": 7}]], [1.5, 1])
    >>> data[2], data[-1]
    ({'x': 1, 'idx': 0, 'dataset_idx': 0}, {'x': 7, 'idx': 0, 'dataset_idx': 1})
    >>> data.cumulative_sizes
    [3, 4]

    Args:
        datasets: Anything with ``__len__`` and ``__getitem__``.
        weights: One for each dataset; 0 leaves a dataset out, above 1 repeats it.
        global_idx: Make ``idx`` the position in the whole concatenation instead of the index inside its own dataset.
        names: Other keys for ``idx`` or ``dataset_idx``, where samples have columns of these names.
        dataset_idx: Numbers of the datasets; None: 0, 1, 2 ... Needed where two concatenations go into one loader.

    Attributes:
        cumulative_sizes: Samples up to the end of each dataset, copies included.
        provides_names: Says that samples already carry their names.
        is_sequential: Whether the order of the datasets matters, so that shuffling would spoil it.
    """

    provides_names = True
    is_sequential = False

    def __init__(
        self,
        datasets: Iterable[Any],
        weights: Iterable[float],
        *,
        global_idx: bool = False,
        names: Mapping[str, str] | None = None,
        dataset_idx: Sequence[int] | None = None,
    ) -> None:
        self.datasets, self.weights = checked_weights(datasets, weights)
        self.global_idx = global_idx
        self.names = dict(names or {})
        self.numbers = _numbers(dataset_idx, len(self.datasets))
        self._keys = name_keys(names)
        self.lengths = [math.ceil(len(d) * w) for d, w in zip(self.datasets, self.weights, strict=True)]
        self.cumulative_sizes: list[int] = np.cumsum(self.lengths).tolist()

    def __len__(self) -> int:
        """Return the number of samples of all datasets together, copies included."""
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        """Return a sample; dicts gain ``idx`` and ``dataset_idx``. Negative indices count from the end."""
        position = in_range(index, len(self))
        dataset = int(np.searchsorted(self.cumulative_sizes, position, side="right"))
        start = self.cumulative_sizes[dataset] - self.lengths[dataset]
        place = (position - start) % len(self.datasets[dataset])
        sample = self.datasets[dataset][place]
        if not isinstance(sample, Mapping):
            return sample
        added = {
            self._keys[IDX]: position if self.global_idx else place,
            self._keys[DATASET_IDX]: self.numbers[dataset],
        }
        return named(sample, added, replaces=provides_names(self.datasets[dataset]))

    @property
    def random_free(self) -> bool:
        """Whether nothing in it draws from a global random generator."""
        return all(map(draws_nothing, self.datasets))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The datasets, each with its rows; their samples carry these numbers and indices."""
        found = []
        for place, (dataset, rows) in enumerate(zip(self.datasets, self.lengths, strict=True)):
            samples, first = (rows, self.cumulative_sizes[place] - rows) if self.global_idx else (len(dataset), 0)
            found.append(Part(self.numbers[place], f"[{place}]", rows, samples, first))
        return tuple(found)

    @property
    def seq_len(self) -> int:
        """Sequence length of the first dataset, where it says one; 1 otherwise."""
        return int(getattr(self.datasets[0], "seq_len", 1))

    def set_epoch(self, epoch: int) -> None:
        """Notify the datasets of the epoch, where they want to know."""
        for dataset in self.datasets:
            notify_epoch(dataset, epoch)

    def __add__(self, other: Any) -> Any:
        """Return torch's concatenation with another dataset, as torch's datasets do."""
        if "torch.utils.data" not in sys.modules:
            return NotImplemented
        return sys.modules["torch.utils.data"].ConcatDataset([self, other])

    def __reduce__(self) -> tuple[Any, ...]:
        # Worker processes get a copy; the default would trip over __class__ below.
        return restored, (type(self), self.__dict__)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch_class(type(self), "ConcatDataset")


class SequentialWeightedConcatDataset(WeightedConcatDataset):
    """Datasets one after another, each as many times as its weight says; the order is that of the indices.

    Read it in order: ``shuffle=False``. A Lading loader refuses to shuffle it; a torch ``DataLoader`` cannot be asked.

    >>> data = SequentialWeightedConcatDataset([["a", "b"], ["c", "d", "e", "f"]], [1, 0.5])
    >>> [data[i] for i in range(len(data))]
    ['a', 'b', 'c', 'd']
    """

    is_sequential = True


class WeightedConcatChatDataset(WeightedConcatDataset):
    """``WeightedConcatDataset`` whose dict samples also say ``dataset_name``, as phyagi's datasets of chats do.

    >>> WeightedConcatChatDataset([[{"x": 1}], [{"x": 7}]], [1, 1], labels=["a", "b"])[1]
    {'x': 7, 'idx': 0, 'dataset_idx': 1, 'dataset_name': 'b'}

    Args:
        datasets, weights, options: See ``WeightedConcatDataset``.
        labels: Name of each dataset; None: "0", "1", ...
    """

    def __init__(
        self, datasets: Iterable[Any], weights: Iterable[float], labels: Iterable[str] | None = None, **options: Any
    ) -> None:
        super().__init__(datasets, weights, **options)
        self.labels = [str(n) for n in range(len(self.datasets))] if labels is None else list(labels)
        if len(self.labels) != len(self.datasets):
            raise SourceError(
                f"{len(self.labels)} labels for {len(self.datasets)} datasets: expected a label for each dataset."
            )

    def __getitem__(self, index: int) -> Any:
        """Return a sample; dicts gain ``idx``, ``dataset_idx`` and ``dataset_name``."""
        sample = super().__getitem__(index)
        if not isinstance(sample, Mapping):
            return sample
        place = int(np.searchsorted(self.cumulative_sizes, in_range(index, len(self)), side="right"))
        return {**sample, "dataset_name": self.labels[place]}


def checked_weights(datasets: Iterable[Any], weights: Iterable[float]) -> tuple[list[Any], list[float]]:
    """Return datasets and weights as lists, or say what is wrong with them."""
    found, shares = list(datasets), [float(weight) for weight in weights]
    if not found or not shares:
        raise SourceError(
            f"{len(found)} datasets and {len(shares)} weights: expected a dataset at least, with a weight."
        )
    if len(found) != len(shares):
        raise SourceError(f"{len(found)} datasets but {len(shares)} weights: expected a weight for each dataset.")
    for number, weight in enumerate(shares):
        if not (weight >= 0 and math.isfinite(weight)):
            raise SourceError(f"the weight of dataset {number} is {weight}: expected a number of at least 0.")
    return found, shares


def _numbers(given: Sequence[int] | None, count: int) -> list[int]:
    numbers = list(range(count)) if given is None else [int(number) for number in given]
    if len(numbers) != count or len(set(numbers)) != count or min(numbers) < 0:
        raise SourceError(f"dataset_idx is {given}: expected {count} different numbers of at least 0.")
    return numbers
