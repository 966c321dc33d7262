"""A stream drawn from several datasets by weight.

    draw         0  1  2  3  4  5 ...     a hash of (seed, epoch, draw) says from which dataset
    dataset_idx  0  2  2  1  0  2
    idx          0  0  1  0  1  2         the sample's place in its own dataset
    rank         0  1  0  1  0  1         of 2; workers of a rank take turns likewise

There is no random state: a draw is a pure function of its number, so all ranks
and workers agree on the stream, each yields its own draws of it, and a state is
a few integers. NumPy only; a torch ``IterableDataset`` to those who ask.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from lading.errors import ResumeError, SourceError
from lading.identity import World
from lading.identity.bill import DATASET_IDX, IDX
from lading.identity.hashing import key64, keys64
from lading.order.mixture.spec import integer_weights
from lading.runtime.torch_class import restored, torch_class
from lading.source.protocol import notify_epoch
from lading.source.reader import provides_names
from lading.source.tagged import has_index, name_keys, named
from lading.source.weighted_concat import checked_weights

_BLOCK = 4096
_SHIFT = np.uint64(33)  # leaves the 31 bits that integer weights add up to


class WeightedConcatIterableDataset:
    """Samples drawn from several datasets in proportion to weight times length.

    Datasets are re-iterables. One that is used up starts over. Where all have a length, an epoch is as long as that of
    a ``WeightedConcatDataset``, rounded up to a multiple of the ranks; otherwise weights alone are the shares and the
    stream does not end. Every rank and worker reads all datasets (those with ``__getitem__`` only at their own draws)
    and yields its own draws.

    >>> stream = WeightedConcatIterableDataset([[{"x": 1}, {"x": 2}], [{"x": 7}]], [1, 1], seed=2)
    >>> [(sample["dataset_idx"], sample["idx"]) for sample in stream]
    [(1, 0), (0, 0), (0, 1)]

    Args:
        datasets: Re-iterables; an iterator is refused, because it would be empty when it starts over.
        weights: One for each dataset.
        seed: Same seed, same draws, everywhere.
        rank: This rank; None: the process group's or the environment's.
        world_size: Number of ranks; given with ``rank``.
        names: Other keys for ``idx`` or ``dataset_idx``, where samples have columns of these names.

    Attributes:
        provides_names: Says that samples already carry their names.
        epoch: Epoch of the draws; see ``set_epoch``.
    """

    provides_names = True

    def __init__(
        self,
        datasets: Iterable[Any],
        weights: Iterable[float],
        *,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.datasets, self.weights = checked_weights(datasets, weights)
        self.lengths = _lengths(self.datasets)
        self.seed, self.epoch, self.names = seed, 0, dict(names or {})
        self._keys = name_keys(names)
        shares = [w * (1 if n is None else n) for w, n in zip(self.weights, self.lengths, strict=True)]
        self._ends = np.cumsum(integer_weights(shares))
        self._asked = (rank, world_size)
        self._world: World | None = None if rank is None else World.current(rank, world_size)
        self._next, self._counts = 0, [0] * len(self.datasets)
        self._is_resumed = False

    @property
    def world(self) -> World:
        """Who reads: looked up at first use, because datasets are made before there is a process group."""
        if self._world is None:
            self._world = World.current(*self._asked)
        return self._world

    def set_rank_and_world_size(self, rank: int | None, world_size: int | None) -> None:
        """Say who reads, for those who know it later. The datasets themselves stay whole."""
        self._world = World.current(rank, world_size)

    def set_epoch(self, epoch: int) -> None:
        """Draw as another epoch does, and notify the datasets, where they want to know."""
        self.epoch, self._is_resumed = epoch, False
        for dataset in self.datasets:
            notify_epoch(dataset, epoch)

    def __len__(self) -> int:
        """Return this rank's samples in an epoch."""
        total = self._total()
        if total is None:
            raise TypeError(f"a {type(self).__name__} of datasets without lengths does not end: it has no length")
        return total // self.world.world_size

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's and worker's samples: from the start of the epoch, or after a loaded state."""
        first, counts = (self._next, self._counts) if self._is_resumed else (0, [0] * len(self.datasets))
        self._is_resumed = False
        return self._samples(first, list(counts))

    def _samples(self, first: int, counts: list[int]) -> Iterator[Any]:
        world, (worker, num_workers) = self.world, _worker()
        readers = [_Reader(d, n, done) for d, n, done in zip(self.datasets, self.lengths, counts, strict=True)]
        for draw, dataset in self._draws(first):
            counts[dataset] += 1
            turn, rank = divmod(draw, world.world_size)
            if rank != world.rank or turn % num_workers != worker:
                readers[dataset].skip()
                continue
            place, sample = readers[dataset].take(dataset)
            self._next, self._counts = draw + 1, counts
            yield self._named(dataset, place, sample)

    def _draws(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield (draw, dataset) from a draw on."""
        key, total = key64(self.seed, "weighted stream", self.epoch), self._total()
        while total is None or first < total:
            stop = first + _BLOCK if total is None else min(first + _BLOCK, total)
            hashes = keys64(key, np.arange(first, stop)) >> _SHIFT
            chosen = np.searchsorted(self._ends, hashes.astype(np.int64), side="right")
            yield from zip(range(first, stop), chosen.tolist(), strict=True)
            first = stop

    def _named(self, dataset: int, place: int, sample: Any) -> Any:
        if not isinstance(sample, Mapping):
            return sample
        added = {self._keys[IDX]: place, self._keys[DATASET_IDX]: dataset}
        return named(sample, added, replaces=provides_names(self.datasets[dataset]))

    def state_dict(self) -> dict[str, Any]:
        """Return how far this process has read: JSON-able. In a worker process it is that worker's."""
        return {"epoch": self.epoch, "draw": self._next, "counts": list(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume after the sample that was yielded last when a state was taken, on the next ``iter``.

        Datasets without ``__getitem__`` are read again up to there.
        """
        if not isinstance(state, Mapping) or not {"epoch", "draw", "counts"} <= set(state):
            raise ResumeError("this is no state of a weighted stream: expected what its state_dict() returned.")
        if len(state["counts"]) != len(self.datasets):
            raise ResumeError(
                f"the state is of {len(state['counts'])} datasets, this stream has {len(self.datasets)}. Make it of "
                "the same datasets."
            )
        self.set_epoch(int(state["epoch"]))
        self._next, self._counts = int(state["draw"]), [int(count) for count in state["counts"]]
        self._is_resumed = True

    def _total(self) -> int | None:
        """Return the draws of an epoch, all ranks together; None where it does not end."""
        rows = [None if n is None else math.ceil(n * w) for n, w in zip(self.lengths, self.weights, strict=True)]
        if any(n is None for n in rows):
            return None
        ranks = self.world.world_size
        return -(-sum(n for n in rows if n is not None) // ranks) * ranks

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process has no process group: it must know whose worker it is. See also __class__ below.
        return restored, (type(self), {**self.__dict__, "_world": self.world})

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch_class(type(self), "IterableDataset")


class _Reader:
    """Reads one dataset over and over; what is skipped is passed over when the next sample is wanted."""

    def __init__(self, dataset: Any, length: int | None, done: int) -> None:
        self._dataset, self._by_index = dataset, length if has_index(dataset) else None
        self._items: Iterator[Any] = iter(())
        self._place = -1
        self._behind = done if length is None else done % max(length, 1)

    def skip(self) -> None:
        """Pass one sample over."""
        self._behind += 1

    def take(self, number: int) -> tuple[int, Any]:
        """Return the next sample and its place in the dataset."""
        if self._by_index is not None:
            place = self._behind % self._by_index
            self._behind += 1
            return place, self._dataset[place]
        for _ in range(self._behind):
            self._read(number)
        self._behind = 0
        return self._read(number)

    def _read(self, number: int) -> tuple[int, Any]:
        for _ in range(2):
            for item in itertools.islice(self._items, 1):
                self._place += 1
                return self._place, item
            self._items, self._place = iter(self._dataset), -1
        raise SourceError(
            f"dataset {number} of a weighted stream gave no sample when it started over: expected at least one. Give "
            "it weight 0, or pass something that can be iterated again."
        )


def _lengths(datasets: list[Any]) -> list[int | None]:
    for number, dataset in enumerate(datasets):
        if isinstance(dataset, Iterator) or not (isinstance(dataset, Iterable) or hasattr(dataset, "__getitem__")):
            raise SourceError(
                f"dataset {number} is a {type(dataset).__name__}: expected something that can be iterated again and "
                "again. Pass a list, a dataset, or an object whose __iter__ makes a new iterator."
            )
    found = [len(d) if hasattr(d, "__len__") else None for d in datasets]
    if None in found and any(n is not None for n in found):
        without = found.index(None)
        raise SourceError(
            f"dataset {without} has no length and others have: expected lengths of all, because weights are copies of "
            "a dataset, or of none, where weights are shares. Give it __len__."
        )
    return found


def _worker() -> tuple[int, int]:
    """Return the worker process this is, and of how many; the first of one outside of workers."""
    torch_data = sys.modules.get("torch.utils.data")
    info = None if torch_data is None else torch_data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
