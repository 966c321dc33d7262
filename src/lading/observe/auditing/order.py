"""Watch a short run of a loader: which samples come in which batch, from which worker, on which rank.

    map style    the loader runs with a dataset that only says which index was asked for: no data is loaded
    stream       the loader runs as it is; each sample is hashed where it is made
    Lading       the plan is asked

Nothing is taken from the user's run: generators, epochs and positions are put
back, and everything happens on copies of the loader.

What a watched run shows about its order: numbers that findings are made of.

    samples of the data    0 1 2 3 4 5 6 7 8 9
    asked for, epoch 0     3 1 7 . 9 0 . 2 5 8     what is missing, what comes twice, where,
    asked for, epoch 1     3 1 7 . 9 0 . 2 5 8     and is it the same again

Nothing here is as large as the dataset: only what was seen is kept.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.identity import World
from lading.observe.auditing.finding import some
from lading.observe.dataloader import opened_copy, order_of
from lading.observe.names import RowNames
from lading.observe.recording import Recording


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


def _as_they_are(indices: NDArray[np.int64]) -> RowNames:
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
    found: NDArray[np.int64] = starts[bill.source_idx[real]] + bill.rows[real]
    return found


def dealt(watched: list[Watched], epoch: int) -> Iterator[int]:
    """Return the samples of an epoch as they were dealt: one of each rank in turn."""
    orders = [w.order(epoch) for w in watched]
    for place in range(max(map(len, orders), default=0)):
        for order in orders:
            if place < len(order):
                yield int(order[place])


# What chance would do less often than this is not taken for chance.
_UNLIKELY = math.log(1e-4)


@dataclass(frozen=True)
class OrderFacts:
    """What is known of a loader besides what it did.

    Attributes:
        length: Samples of the dataset.
        sampler: Name of the sampler's type.
        has_set_epoch: Whether the sampler has a ``set_epoch``.
        shuffles: Whether the sampler says that it shuffles.
        is_fixed: Whether the sampler is known to draw nothing by chance.
        drops_last: Whether loader, batch sampler or sampler say ``drop_last``.
        with_replacement: Whether the sampler says that it draws with replacement.
        draws_again: Whether the sampler draws each sample anew from all of them.
        takes_part: Whether the sampler says that it takes only a part of the data in each epoch.
        is_limited: Whether the training loop takes only some batches of an epoch.
    """

    length: int
    sampler: str
    has_set_epoch: bool = False
    shuffles: bool = False
    is_fixed: bool = False
    drops_last: bool = False
    with_replacement: bool = False
    draws_again: bool = False
    takes_part: bool = False
    is_limited: bool = False


class OrderEvidence:
    """What all ranks of one loader were given, and what is known of it."""

    def __init__(self, watched: list[Watched], facts: OrderFacts) -> None:
        self.watched, self.facts = watched, facts
        self.num_ranks = len(watched)
        self.num_epochs = len(watched[0].epochs)

    @functools.cached_property
    def counts(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The samples that came in each epoch, ascending, and how often each did."""
        orders = [np.concatenate([rank.order(e) for rank in self.watched]) for e in range(self.num_epochs)]
        return [np.unique(order, return_counts=True) for order in orders]

    @functools.cached_property
    def reached(self) -> NDArray[np.int64]:
        """The samples that came in any epoch, ascending."""
        return functools.reduce(np.union1d, [samples for samples, _ in self.counts])

    def num_missing(self, epoch: int) -> int:
        """Return how many samples did not come in an epoch."""
        return self.facts.length - len(self.counts[epoch][0])

    @functools.cached_property
    def step_samples(self) -> int:
        """Samples of the largest step, all ranks together."""
        sizes = [len(batch.samples) for rank in self.watched for epoch in rank.epochs for batch in epoch]
        return max(sizes, default=0) * self.num_ranks

    @functools.cached_property
    def is_drawn(self) -> bool:
        """Whether samples are drawn with replacement: some come twice, others not at all, in every epoch."""
        both = all((times > 1).any() and len(samples) < self.facts.length for samples, times in self.counts)
        return self.facts.with_replacement or (both and not self.is_shared)

    @functools.cached_property
    def is_shared(self) -> bool:
        """Whether one sample is on several ranks in the same epoch, more often than padding explains."""
        _, on_ranks = np.unique(np.concatenate([np.unique(r.order(0)) for r in self.watched]), return_counts=True)
        return int((on_ranks > 1).sum()) >= max(self.step_samples, 1)

    @functools.cached_property
    def is_repeated_run(self) -> bool:
        """Whether every epoch was the same, on every rank, and not by chance."""
        later = range(1, self.num_epochs)
        alike = all(np.array_equal(rank.order(0), rank.order(e)) for rank in self.watched for e in later)
        size = min(sum(len(rank.order(0)) for rank in self.watched), self.facts.length)
        return self.num_epochs > 1 and alike and self._is_unlikely(math.lgamma(self.facts.length - size + 1), size=size)

    def _is_unlikely(self, free: float, *, size: int, ordered: bool = True) -> bool:
        """Say whether chance would hardly ever draw the same samples (in the same order) in every epoch."""
        ways = math.lgamma(self.facts.length + 1) - free - (0.0 if ordered else math.lgamma(size + 1))
        return self.facts.is_fixed or -ways * (self.num_epochs - 1) < _UNLIKELY

    @functools.cached_property
    def is_in_order(self) -> bool:
        """Whether samples come in the order of the dataset, as for evaluation."""
        firsts = list(dict.fromkeys(dealt(self.watched, 0)))  # padding repeats what came before
        return firsts == sorted(firsts) and not self.facts.shuffles

    @functools.cached_property
    def tail(self) -> int:
        """Samples missing at the end of every epoch, where that is all that is missing; else 0."""
        missing = {self.num_missing(epoch) for epoch in range(self.num_epochs)}
        if len(missing) != 1 or self.facts.is_limited or self.is_drawn:
            return 0
        (m,) = missing
        if self.step_samples == 0:
            return m if self.facts.drops_last else 0  # not one batch was full
        batch = self.step_samples // self.num_ranks
        ends = (self.facts.length % max(batch, 1), self.facts.length % max(self.step_samples, 1))
        whole = self.facts.drops_last or (m in ends and not self.facts.takes_part)
        return m if whole and 0 < m < self.step_samples + self.num_ranks else 0

    @functools.cached_property
    def common_batches(self) -> int:
        """How many batches at the start of all epochs are the same, on every rank."""
        return min(self._common_batches(rank) for rank in self.watched)

    def _common_batches(self, rank: Watched) -> int:
        for number, batches in enumerate(zip(*rank.epochs, strict=False)):
            if not all(np.array_equal(batches[0].samples, other.samples) for other in batches[1:]):
                return number
        return min(len(epoch) for epoch in rank.epochs)

    @property
    def has_common_head(self) -> bool:
        """Whether epochs begin alike and continue differently, and not by chance."""
        if self.is_repeated_run or self.common_batches == 0 or self.is_in_order:
            return False
        size = sum(len(b.samples) for b in self.watched[0].epochs[0][: self.common_batches])
        return self._is_unlikely(math.lgamma(max(self.facts.length - size, 0) + 1), size=size)

    def is_padding(self, num_extra: int) -> bool:
        """Say whether what comes twice only fills up the end of an epoch."""
        if num_extra >= max(self.step_samples, 1) or self.num_missing(0):
            return False
        seen: set[int] = set()
        last = max(len(rank.epochs[0]) for rank in self.watched) - 1
        for number in range(last):
            for rank in self.watched:
                batch = rank.epochs[0][number].samples.tolist() if number < len(rank.epochs[0]) else []
                if len(set(batch)) < len(batch) or not seen.isdisjoint(batch):
                    return False
                seen.update(batch)
        return True

    @property
    def num_never(self) -> int:
        """How many samples came in no epoch."""
        return self.facts.length - len(self.reached)

    def some_never(self) -> str:
        """Return the first samples that never came, without a table of all samples."""
        ends = np.concatenate([self.reached, [self.facts.length]])
        starts = np.concatenate([[0], self.reached + 1])
        gaps = (range(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if a < b)
        return some(list(islice(chain.from_iterable(gaps), 6)), total=self.num_never)

    def is_chance(self) -> bool:
        """Say whether chance explains what none of the epochs took."""
        size = len(self.counts[0][0])
        if size == 0:
            return False
        if all(np.array_equal(self.counts[0][0], samples) for samples, _ in self.counts[1:]):
            free = math.lgamma(self.facts.length - size + 1)
            return self.num_epochs > 1 and not self._is_unlikely(free, size=size, ordered=False)
        shares = [self.num_missing(epoch) / self.facts.length for epoch in range(self.num_epochs)]
        expected = self.facts.length * math.prod(shares)
        return self.num_never <= expected + 5 * math.sqrt(expected) + 1
