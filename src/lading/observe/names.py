"""Turn what a foreign loader pulled into names: which dataset, which index.

    map style     what the sampler gave           [5, 2, 9]
    iterable      worker and running count        worker 1, samples 6..8  ──▶  2^40 + 6, 2^40 + 7, 2^40 + 8

An iterable's samples have no index of their own. What is known of one is who
read it and how many that worker had read before, and its name says just that:
whether workers share a stream in turns, in blocks or not at all, nobody knows.
"""

from __future__ import annotations

import array
import functools
import operator
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Subset

from lading.errors import SourceError
from lading.identity import World
from lading.identity.bill import DATASET_IDX, IDX, IS_PADDING
from lading.observe.slips import StreamPlace
from lading.order.dataset import Parts, PlannedDataset, numbered
from lading.runtime import compiled
from lading.runtime.arrays import extent
from lading.source.reader import parts_called, provides_names
from lading.source.stream.torch import TaggedIterableDataset

NAME = "data"  # what a Lading loader calls a single dataset

_COUNT_BITS = 40  # of a stream's row


class RowNames(NamedTuple):
    """Names of a batch's samples; ``kept``: places of those that are rows of it, None: all."""

    datasets: NDArray[np.int32]
    indices: NDArray[np.int64]
    is_padding: NDArray[np.bool_]
    kept: NDArray[np.int64] | None = None


def pulled_indices(pulled: Any, length: int) -> NDArray[np.int64]:
    """Return the indices behind what a sampler or batch sampler gave.

    Args:
        pulled: An index, or any kind of sequence of them. Of an index that is a tuple the first part counts.
        length: Length of the dataset, to count negative indices from; 0 where it has none.
    """
    if isinstance(pulled, slice):
        pulled = range(*pulled.indices(length))
    if type(pulled) is list and (found := _integers(pulled)) is not None:  # the usual case, at a third of the time
        return _counted_from_start(found, length)
    try:
        values = np.asarray(pulled)
        if values.dtype.kind not in "iu" or values.ndim > 1:
            values = np.array([_index(item) for item in pulled], np.int64)
    except (TypeError, ValueError) as error:
        raise SourceError(
            f"the sampler gave {pulled!r} ({type(pulled).__name__}): expected integers, so that samples can be "
            "named. Wrap the dataset in lading.TaggedDataset and let the sampler give its indices."
        ) from error
    return _counted_from_start(values.reshape(-1).astype(np.int64), length)


def _integers(items: list[Any]) -> NDArray[np.int64] | None:
    """Return a list of Python's integers as an array; None where there is something else in it."""
    if compiled.enabled():
        found = np.empty(len(items), np.int64)
        return found if compiled.kernels.integers(items, found) else None
    try:
        return np.frombuffer(array.array("q", items), np.int64)
    except (OverflowError, TypeError):
        return None


def _counted_from_start(indices: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    if extent(indices)[0] >= 0:
        return indices
    return np.where(indices < 0, indices + length, indices)


class Namer:
    """Turns indices of a map-style dataset into the names that its samples have, or would have in a Lading loader.

    Args:
        dataset: Any map-style dataset. Of a ``Subset`` of a dataset that names its samples those names count.
    """

    def __init__(self, dataset: Any) -> None:
        self._chosen: NDArray[np.int64] | None = None
        if type(dataset) is Subset and provides_names(dataset.dataset):
            self._chosen, dataset = np.asarray(dataset.indices, dtype=np.int64), dataset.dataset
        self._parts = _parts(dataset)
        self._is_plain = self._chosen is None and self._parts.is_plain
        self.names, self.lengths = self._parts.names, tuple(self._parts.samples)

    def __call__(self, indices: NDArray[np.int64]) -> RowNames:
        """Return the names of the samples at some indices."""
        zeros, no_padding = _zeros(len(indices))
        if self._is_plain:
            return RowNames(zeros, indices, no_padding)
        rows = indices if self._chosen is None else self._chosen[indices]
        return RowNames(*self._parts.of_rows(zeros, rows), no_padding)


def _parts(dataset: Any) -> Parts:
    length = len(dataset) if hasattr(dataset, "__len__") else 0
    return Parts(numbered([PlannedDataset(NAME, length, parts=parts_called(dataset, NAME))]))


@functools.lru_cache(maxsize=64)
def _zeros(rows: int) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return "dataset 0" and "no padding" for all rows; shared by all batches of a size, so it is read-only."""
    zeros = np.zeros(rows, np.int32), np.zeros(rows, bool)
    for column in zeros:
        column.flags.writeable = False
    return zeros


def stream_names(place: StreamPlace, world: World) -> RowNames:
    """Return names in an iterable dataset, of rows that carry none: who read them, and the count."""
    first = stream_index(world.rank * place.num_workers + place.worker, place.start)
    zeros, no_padding = _zeros(place.size)
    return RowNames(zeros, np.arange(first, first + place.size, dtype=np.int64), no_padding)


def stream_index(shard: int, count: int) -> int:
    """Return the index of a stream's row in the books.

    Args:
        shard: Who read it: the worker, counted over all ranks.
        count: Rows that it had read before, in this pass.
    """
    return (shard << _COUNT_BITS) + count


def stream_place(index: int) -> tuple[int, int]:
    """Return who read a row of a stream, and how many it had read before.

    >>> stream_place(stream_index(3, 17))
    (3, 17)
    """
    return index >> _COUNT_BITS, index & ((1 << _COUNT_BITS) - 1)


def stream_dataset_names(dataset: Any) -> tuple[str, ...]:
    """Return names for the datasets in a stream, by number."""
    parts = getattr(dataset, "datasets", None)
    if isinstance(parts, list | tuple) and parts:
        return tuple(f"{NAME}[{number}]" for number in range(len(parts)))
    return ("",) * int(getattr(dataset, "dataset_idx", 0)) + (NAME,)


def own_names(dataset: Any, batch: Any) -> RowNames | None:
    """Return the names that the rows of a stream carry themselves; None where they carry none."""
    if isinstance(dataset, TaggedIterableDataset) and dataset.batch_size is not None:
        data, ids, _ = batch
        if not isinstance(data, Mapping) and all(isinstance(i, int) for i in ids):
            indices = np.array(ids, np.int64)
            return RowNames(np.full(len(ids), dataset.dataset_idx, np.int32), indices, indices < 0)
        batch = data
    if not isinstance(batch, Mapping) or IDX not in batch or DATASET_IDX not in batch:
        return None
    datasets, indices = np.asarray(batch[DATASET_IDX]), np.asarray(batch[IDX])
    padding = np.asarray(batch[IS_PADDING]).astype(bool) if IS_PADDING in batch else np.zeros(len(indices), bool)
    return RowNames(datasets.astype(np.int32), indices.astype(np.int64), padding)


def _index(item: Any) -> int:
    return operator.index(item[0] if isinstance(item, tuple | list) else item)
