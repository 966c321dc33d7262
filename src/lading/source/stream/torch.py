"""A stream whose samples and batches know their names.

    source  a b c d e f g            any re-iterable, or a function that returns an iterator
    batches (abc, [0, 1, 2], 0)      data, ids of its samples, id of the batch
            (def, [3, 4, 5], 1)
            (g,   [6],       2)

Every rank and worker gets its own batches (``lading.source.stream.sharding``), and a
batch has the same id and the same samples whoever reads it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from lading.errors import SourceError
from lading.identity import World
from lading.identity.bill import DATASET_IDX, ID, IDX, IS_PADDING
from lading.runtime.fields import is_whole
from lading.source.counting import RowCounter, check_samples
from lading.source.stream.sharding import ReaderSlot, StreamBatch, share_shard, share_whole
from lading.source.tagged import name_keys, named

ITEMS = ("samples", "pairs")


class TaggedIterableDataset(IterableDataset[Any]):
    """A stream that yields samples with ids, or whole batches ``(data, sample_ids, batch_id)``.

    Batches go through ``DataLoader(dataset, batch_size=None)``. Samples are dicts that gain ``idx`` (the place in the
    stream) and ``dataset_idx``, or become ``(sample, id)``. With several ranks, rows that only fill up a short end are
    marked: their id is -1 (or an empty text) and dicts have ``is_padding``.

    >>> stream = TaggedIterableDataset(lambda: iter("abcde"), batch_size=2, collate_fn="".join)
    >>> list(stream)
    [('ab', [0, 1], 0), ('cd', [2, 3], 1), ('e', [4], 2)]

    Args:
        source: A re-iterable, or a function that returns a new iterator. If it has ``shard(i, n)``, which gives samples
            i, i + n, i + 2n, ... of the stream, each worker reads only its shard, and a batch holds samples of one
            shard; otherwise each worker reads the whole source and keeps its batches.
        batch_size: Samples of a batch. None: yield samples.
        items: ``samples``, or ``pairs`` if the source yields ``(id, sample)``.
        dataset_idx: Number of this dataset among several.
        drop_last: Drop a short end instead of filling it up.
        collate_fn: Makes the data of a batch from a list of samples. None: torch's own.
        rank: This rank; None: the process group's or the environment's.
        world_size: Number of ranks; given with ``rank``.
        names: Other keys for ``idx``, ``dataset_idx`` or ``id``, where samples have columns of these names.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int | None = None,
        items: str = "samples",
        *,
        dataset_idx: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        _check(source, batch_size, items)
        self.source = source
        self.batch_size = batch_size
        self.items = items
        self.dataset_idx = int(dataset_idx)
        self.drop_last = drop_last
        self.collate_fn, self._counter = collate_fn, RowCounter(collate_fn or default_collate)
        self.names = dict(names or {})
        self.first = 0
        self._keys = name_keys(names)
        self._asked = (rank, world_size)
        self._world: World | None = None if rank is None else World.current(rank, world_size)

    def starting_at(self, batch_id: int) -> TaggedIterableDataset:
        """Return the same stream from a batch on (a sample on, without ``batch_size``): the rest of an epoch.

        Ids stay what they are. Resume with it, then continue with the whole stream for later epochs.
        """
        # Not copy.copy, which would look the world up: there may be no process group yet.
        rest = type(self).__new__(type(self))
        rest.__dict__.update(self.__dict__, first=batch_id)
        return rest

    @property
    def world(self) -> World:
        """Who reads: looked up at first use, because loaders are built before there is a process group."""
        if self._world is None:
            self._world = World.current(*self._asked)
        return self._world

    def __getstate__(self) -> dict[str, Any]:
        # A worker process has no process group: it is given the rank it works for.
        return {**self.__dict__, "_world": self.world}

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's and worker's share."""
        emit = self._sample if self.batch_size is None else self._batch
        for batch in self._batches_of_reader():
            yield emit(batch)

    def __len__(self) -> int:
        """Return this rank's batches in an epoch, where the source has a length that all workers share."""
        if self.batch_size is None or _shard_of(self.source) is not None or not hasattr(self.source, "__len__"):
            raise TypeError(f"a {type(self).__name__} of {_kind(self.source)} has no length before it is read")
        full, rest = divmod(len(self.source), self.batch_size)
        ranks = self.world.world_size
        first = self.first // ranks
        if self.drop_last:
            return max(0, full // ranks - first)
        return max(0, -(-(full + (rest > 0)) // ranks) - first)

    def _batches_of_reader(self) -> Iterator[StreamBatch]:
        info, world, size = get_worker_info(), self.world, self.batch_size or 1
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        slot = ReaderSlot(world.rank, world.world_size, worker, num_workers, self.first)
        shard = _shard_of(self.source)
        length = len(self.source) if hasattr(self.source, "__len__") else None
        # A stream with fewer samples than slots would leave some slots nothing to fill up with.
        if shard is None or (length is not None and length < slot.num_shards):
            stream = self.source() if not isinstance(self.source, Iterable) and callable(self.source) else self.source
            return share_whole(stream, size, slot, drop_last=self.drop_last)
        if length is None and world.world_size > 1:
            raise SourceError(
                f"{_kind(self.source)} has shard(i, n) but no length, so {world.world_size} ranks cannot agree on "
                "their number of batches. Give it __len__, or leave shard out."
            )
        return share_shard(shard(slot.shard, slot.num_shards), size, slot, length=length, drop_last=self.drop_last)

    def _sample(self, batch: StreamBatch) -> Any:
        (position,), (id_, sample) = batch.positions, self._pair(batch.positions[0], batch.items[0])
        if not isinstance(sample, Mapping):
            return sample, _padding_id(id_) if batch.num_padding else id_
        added = {self._keys[IDX]: position, self._keys[DATASET_IDX]: self.dataset_idx}
        if self.items == "pairs":
            added[self._keys[ID]] = id_
        if self.world.world_size > 1:
            added[IS_PADDING] = batch.num_padding > 0
        return named(sample, added, replaces=False)

    def _batch(self, batch: StreamBatch) -> tuple[Any, list[Any], int]:
        pairs = [self._pair(p, item) for p, item in zip(batch.positions, batch.items, strict=True)]
        num_real = len(pairs) - batch.num_padding
        ids = [id_ if row < num_real else _padding_id(id_) for row, (id_, _) in enumerate(pairs)]
        samples = [sample for _, sample in pairs]
        check_samples(samples, batch.positions, _kind(self.source).removeprefix("a "))
        data = (self.collate_fn or default_collate)(samples)
        if self._counter(data, len(pairs)).kept is not None:
            raise SourceError(
                "the collate_fn left samples out of a batch, whose ids would go on naming them. Leave them out of the "
                "stream, or let it keep every sample."
            )
        if isinstance(data, Mapping):
            added: dict[str, Any] = {
                self._keys[IDX]: torch.tensor(batch.positions),
                self._keys[DATASET_IDX]: torch.full((len(ids),), self.dataset_idx, dtype=torch.int64),
            }
            if self.world.world_size > 1:
                added[IS_PADDING] = torch.arange(len(ids)) >= num_real
            data = named(data, added, replaces=False)
        return data, ids, batch.number

    def _pair(self, position: int, item: Any) -> tuple[Any, Any]:
        if self.items == "samples":
            return position, item
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise SourceError(
                f"the source gave {_kind(item)} at place {position}: expected a pair (id, sample). "
                "Pass items='samples' if it yields bare samples."
            )
        return item[0], item[1]


def _shard_of(source: Any) -> Callable[[int, int], Iterable[Any]] | None:
    """Return the source's ``shard(i, n)``; Hugging Face's ``shard(num_shards, index)`` deals in another way."""
    shard = getattr(source, "shard", None)
    return None if shard is None or "num_shards" in inspect.signature(shard).parameters else shard


def _padding_id(id_: Any) -> Any:
    return "" if isinstance(id_, str) else -1


def _kind(thing: Any) -> str:
    return f"a {type(thing).__name__}"


def _check(source: Any, batch_size: int | None, items: str) -> None:
    if isinstance(source, Iterator):
        raise SourceError(
            f"the source is {_kind(source)}, which can be read only once: it would be empty in epoch 2. "
            "Pass the function that makes it (without calling it), or something that can be iterated again."
        )
    if not callable(source) and not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
        raise SourceError(
            f"the source is {_kind(source)}: expected a re-iterable or a function that returns an iterator."
        )
    if batch_size is not None and not is_whole(batch_size, 1):
        raise SourceError(f"batch_size is {batch_size!r}: expected an integer of at least 1, or None for samples.")
    if items not in ITEMS:
        raise SourceError(f"items is {items!r}: expected 'samples', or 'pairs' for a source that yields (id, sample).")
