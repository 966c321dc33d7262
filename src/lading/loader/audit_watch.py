"""Watch a short run of a loader: which samples come in which batch, from which worker, on which rank.

    map style    the loader runs with a dataset that only says which index was asked for: no data is loaded
    stream       the loader runs as it is; each sample is hashed where it is made
    Lading       the plan is asked

Nothing is taken from the user's run: generators, epochs and positions are put
back, and everything happens on copies of the loader.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import World
from lading.loader.foreign import opened_copy, order_of
from lading.loader.recorded_names import RowNames
from lading.loader.recording import Recording


@dataclass(frozen=True)
class Seen:
    """One batch: a number for each of its samples, and the worker that made it."""

    samples: NDArray[np.int64]
    worker: int = 0


@dataclass
class Watched:
    """What one rank was given, epoch by epoch."""

    rank: int
    epochs: list[list[Seen]] = field(default_factory=list)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the samples of an epoch in the order they came."""
        batches = [batch.samples for batch in self.epochs[epoch]]
        return np.concatenate(batches) if batches else np.empty(0, np.int64)


class Echo:
    """A dataset of the same length whose samples are their own indices."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return index


def ranks_of(dataloader: Any) -> list[Any]:
    """Return a loader for each rank: copies with the sampler moved to the other ranks, where it knows ranks."""
    order = order_of(dataloader)
    if not hasattr(order, "num_replicas") or not hasattr(order, "rank"):
        return [dataloader]
    return [_moved(dataloader, order, rank) for rank in range(order.num_replicas)]


def is_planned(dataloader: Any) -> bool:
    """Say whether this is a Lading loader, whose plan can be asked."""
    return hasattr(dataloader, "with_bills") and hasattr(dataloader, "plan")


def watch_order(dataloader: Any, rank: int, epochs: int, limit: int | None, begin: Callable[[int], None]) -> Watched:
    """Watch which indices a map-style loader asks for, without loading anything where that is possible."""
    try:
        return _watch(_echoing(dataloader), rank, epochs, limit, begin)
    except Exception:  # a loader of the user's own that works on its batches: let it have them
        return _watch(dataloader, rank, epochs, limit, begin)


def watch_plan(dataloader: Any, epochs: int, limit: int) -> list[Watched]:
    """Ask the plan of a Lading loader what every rank gets; padding left out."""
    plan, size = dataloader.plan, dataloader.world.world_size
    starts = np.concatenate([[0], np.cumsum(plan.lengths)])
    watched = []
    for rank in range(size):
        passes = []
        for epoch in range(epochs):
            first = plan.epoch_start(epoch)
            bills = (plan.bill(s, world=World(rank, size)) for s in range(first, plan.epoch_start(epoch + 1)))
            passes.append([Seen(_real(starts, bill)) for bill in islice(bills, limit)])
        watched.append(Watched(rank, passes))
    return watched


def _watch(dataloader: Any, rank: int, epochs: int, limit: int | None, begin: Callable[[int], None]) -> Watched:
    recording = Recording(dataloader, resolve=_as_they_are)
    watched = Watched(rank)
    for epoch in range(epochs):
        begin(epoch)
        batches = islice(recording.start(), limit)
        watched.epochs.append([Seen(names.indices, worker) for _, names, worker in batches])
    return watched


def _as_they_are(dataset: Any, indices: NDArray[np.int64]) -> RowNames:
    return RowNames(np.zeros(len(indices), np.int32), indices, np.zeros(len(indices), bool))


def _echoing(dataloader: Any) -> Any:
    echoing, parts = opened_copy(dataloader)
    parts.update(dataset=Echo(len(dataloader.dataset)), collate_fn=_same, num_workers=0, persistent_workers=False)
    parts.update(pin_memory=False, timeout=0, prefetch_factor=None)
    return echoing


def _same(samples: Any) -> Any:
    return samples


def _moved(dataloader: Any, order: Any, rank: int) -> Any:
    moved = copy.copy(order)
    moved.rank = rank
    loader, parts = opened_copy(dataloader)
    for place in ("sampler", "batch_sampler"):
        there = parts.get(place)
        if there is order:
            parts[place] = moved
        elif getattr(there, "sampler", None) is order:
            parts[place] = copy.copy(there)
            parts[place].sampler = moved
    return loader


def _real(starts: NDArray[np.int64], bill: Any) -> NDArray[np.int64]:
    real = bill.is_real
    return starts[bill.dataset_idx[real]] + bill.idx[real]


def dealt(watched: list[Watched], epoch: int) -> Iterator[int]:
    """Return the samples of an epoch as they were dealt: one of each rank in turn."""
    orders = [w.order(epoch) for w in watched]
    for place in range(max(map(len, orders), default=0)):
        for order in orders:
            if place < len(order):
                yield int(order[place])
