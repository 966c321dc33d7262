"""Watch a short run of a loader: which samples come in which batch, from which worker, on which rank.

    map style    the loader runs with a dataset that only says which index was asked for: no data is loaded
    stream       the loader runs as it is; each sample is hashed where it is made, only the hashes come back
    Lading       the plan is asked

Nothing is taken from the user's run: generators, epochs and positions are put
back, and everything happens on copies of the loader.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from lading.errors import SourceError
from lading.identity import World
from lading.identity.bill import IDX, IS_PADDING
from lading.identity.content import content_hash
from lading.identity.hashing import text64
from lading.observe.dataloader import opened_copy, order_of
from lading.observe.names import RowNames
from lading.observe.recording import Recording
from lading.runtime.fields import whole
from lading.source.stream.torch import TaggedIterableDataset

DRAWS = 12
_MOST_WORKERS = 4

Parts = dict[str, tuple[int, bool]]  # of each part of a sample: its hash, and whether it holds real numbers


@dataclass(frozen=True)
class Loop:
    """How the training loop uses a loader.

    Attributes:
        epochs: Epochs to watch.
        most: Batches to watch in each, at most.
        is_limited: Whether the loop takes no more than these.
        set_epoch: Whether the loop tells sampler and dataset each epoch.
    """

    epochs: int
    most: int
    is_limited: bool = False
    set_epoch: bool = False

    def begin_each(self, loader: Any) -> Iterator[int]:
        """Yield the epochs, after telling each to sampler and dataset."""
        for epoch in range(self.epochs):
            for part in (order_of(loader), loader.dataset) if self.set_epoch else ():
                if hasattr(part, "set_epoch"):
                    part.set_epoch(epoch)
            yield epoch


@dataclass(frozen=True)
class WatchedBatch:
    """One batch: a number for each of its samples, the worker that made it; of a stream also what the samples hold."""

    samples: NDArray[np.int64]
    worker: int = 0
    parts: tuple[Parts, ...] = ()
    numbers: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Pass:
    """One epoch of one rank: its batches, and of a stream whether there were more."""

    batches: list[WatchedBatch]
    was_cut: bool = False

    @functools.cached_property
    def order(self) -> NDArray[np.int64]:
        """The samples in the order they came."""
        return np.concatenate([np.empty(0, np.int64), *(batch.samples for batch in self.batches)])

    @functools.cached_property
    def by_worker(self) -> dict[int, Pass]:
        """What each worker gave."""
        workers = sorted({batch.worker for batch in self.batches})
        return {worker: Pass([b for b in self.batches if b.worker == worker]) for worker in workers}

    @functools.cached_property
    def parts(self) -> list[Parts]:
        """What the samples hold."""
        return [row for batch in self.batches for row in batch.parts]

    def column(self, part: str) -> list[int]:
        """Return the hashes of one part of the samples."""
        return [row[part][0] for row in self.parts if part in row]

    def is_sorted(self) -> bool:
        """Say whether the samples are numbers that rise, as a stream in order gives them."""
        numbers = [number for batch in self.batches for number in batch.numbers]
        known = [number for number in numbers if number is not None]
        return len(known) == len(numbers) > 0 and known == sorted(known)


def alike(arrays: Iterable[NDArray[np.int64]]) -> bool:
    """Say whether all of these are equal."""
    first, *others = arrays
    return all(np.array_equal(first, other) for other in others)


def is_planned(loader: Any) -> bool:
    """Say whether this is a Lading loader, whose plan can be asked."""
    return hasattr(loader, "with_bills") and hasattr(loader, "plan")


def watch_plan(loader: Any, loop: Loop) -> list[list[Pass]]:
    """Ask the plan of a Lading loader what every rank gets; padding left out."""
    plan, size = loader.plan, loader.world.world_size
    starts = np.concatenate([[0], np.cumsum(plan.lengths)])

    def watched(rank: int, epoch: int) -> Pass:
        steps = range(plan.epoch_start(epoch), plan.epoch_start(epoch + 1))[: loop.most]
        bills = (plan.bill(step, world=World(rank, size)) for step in steps)
        return Pass([WatchedBatch((starts[bill.source_idx] + bill.rows)[bill.is_real]) for bill in bills])

    return [[watched(rank, epoch) for epoch in range(loop.epochs)] for rank in range(size)]


class Echo:
    """A dataset of the same length whose samples are their own indices."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return index


def watch_order(loader: Any, loop: Loop) -> list[Pass]:
    """Watch which indices a map-style loader asks for, without loading anything where that is possible."""
    echoing, parts = opened_copy(loader)
    parts.update(dataset=Echo(len(loader.dataset)), collate_fn=_same, num_workers=0, persistent_workers=False)
    parts.update(pin_memory=False, timeout=0, prefetch_factor=None)
    try:
        return _watch_order(loader, echoing, loop)
    except Exception:  # a loader of the user's own that works on its batches: let it have them
        return _watch_order(loader, loader, loop)


def _watch_order(loader: Any, watching: Any, loop: Loop) -> list[Pass]:
    recording, passes = Recording(watching, resolve=_as_they_are, by_order=True), []
    for _ in loop.begin_each(loader):
        batches = islice(recording.start(), loop.most)
        passes.append(Pass([WatchedBatch(names.indices, worker) for _, names, worker in batches]))
    return passes


def _same(samples: Any) -> Any:
    return samples


def _as_they_are(indices: NDArray[np.int64]) -> RowNames:
    return RowNames(np.zeros(len(indices), np.int32), indices, np.zeros(len(indices), bool))


def ranks_of(loader: Any) -> list[Any]:
    """Return a loader for each rank: copies with the sampler moved to the other ranks, where it knows ranks."""
    order = order_of(loader)
    if not hasattr(order, "num_replicas") or not hasattr(order, "rank"):
        return [loader]
    return [_moved(loader, order, rank) for rank in range(order.num_replicas)]


def _moved(loader: Any, order: Any, rank: int) -> Any:
    moved = copy.copy(order)
    moved.rank = rank
    copied, parts = opened_copy(loader)
    for place in ("sampler", "batch_sampler"):
        there = parts.get(place)
        if there is order:
            parts[place] = moved
        elif getattr(there, "sampler", None) is order:
            parts[place] = copy.copy(there)
            parts[place].sampler = moved
    return copied


def watch_stream(loader: Any, loop: Loop, *, alone: bool = False) -> list[Pass]:
    """Watch passes over a stream, short batches included, with the loader's own workers or with one reader.

    Args:
        alone: Read with one worker that lives through all passes, so that random numbers continue from pass to pass.
    """
    workers = 1 if alone else loader.num_workers
    watching, parts = opened_copy(loader)
    tagged = isinstance(loader.dataset, TaggedIterableDataset)
    parts["collate_fn"] = HashingCollate(
        makes_batches=loader.batch_sampler is not None,
        is_tagged=tagged,
        holds_batches=tagged and loader.dataset.batch_size is not None,
    )
    parts.update(drop_last=False, num_workers=workers, pin_memory=False, prefetch_factor=2 if workers else None)
    parts["persistent_workers"] = alone or (loader.persistent_workers and workers > 0)
    passes = []
    for _ in loop.begin_each(loader):
        batches = iter(watching)
        seen = list(islice(batches, loop.most))
        passes.append(Pass(seen, was_cut=len(seen) == loop.most and next(batches, None) is not None))
    return passes


def watch_draws(loader: Any, index: int) -> list[list[int]]:
    """Ask every worker of a map-style loader for one and the same sample, several times; return what each gave."""
    workers = min(loader.num_workers, _MOST_WORKERS)
    probe, parts = opened_copy(loader)
    # torch gives batches to workers in turn, so every worker is asked for the sample in every round.
    parts.update(batch_sampler=[[index]] * (workers * DRAWS), collate_fn=HashingCollate())
    parts.update(num_workers=workers, persistent_workers=False, pin_memory=False)
    return [given.order.tolist() for given in Pass(list(probe)).by_worker.values()]


@dataclass(frozen=True)
class HashingCollate:
    """Takes the place of the collate function: hashes instead of data."""

    makes_batches: bool = True
    is_tagged: bool = False
    holds_batches: bool = False

    def __call__(self, data: Any) -> WatchedBatch:
        info = get_worker_info()
        samples = list(data) if self.makes_batches else self._rows(data)
        real = [sample for sample in samples if not self._is_padding(sample)]
        hashes = np.array([_hash(sample) for sample in real], np.uint64).view(np.int64)
        return WatchedBatch(hashes, info.id if info else 0, tuple(map(_parts, real)), tuple(map(_number, real)))

    def _rows(self, item: Any) -> list[Any]:
        # A tagged stream that makes its own batches gives (data, sample ids, batch id): the ids are the samples.
        return [(None, i) for i in item[1]] if self.holds_batches else [item]

    def _is_padding(self, sample: Any) -> bool:
        if isinstance(sample, Mapping):
            return bool(sample.get(IS_PADDING, False))
        return self.is_tagged and isinstance(sample, tuple) and sample[-1] in (-1, "")


def _hash(sample: Any) -> int:
    try:
        return int(content_hash(sample), 16)
    except SourceError:
        return text64(repr(sample))  # no stable content; good enough for samples of the same process tree


def _parts(sample: Any) -> Parts:
    if isinstance(sample, Mapping):
        named = {str(key): value for key, value in sample.items()}
    elif isinstance(sample, tuple | list):
        named = {f"part {place}": value for place, value in enumerate(sample)}
    else:
        named = {"": sample}
    real = {name for name, v in named.items() if isinstance(v, float) or "float" in str(getattr(v, "dtype", ""))}
    return {name: (_hash(value), name in real) for name, value in named.items()}


def _number(sample: Any) -> int | None:
    """Return the number that names a sample, or that it is."""
    if isinstance(sample, Mapping):
        sample = sample.get(IDX)
    elif isinstance(sample, tuple | list) and sample:
        sample = sample[-1]
    return whole(sample)
