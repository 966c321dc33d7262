"""What a watched run shows about its order: numbers that findings are made of.

    samples of the data    0 1 2 3 4 5 6 7 8 9
    asked for, epoch 0     3 1 7 . 9 0 . 2 5 8     what is missing, what comes twice, where,
    asked for, epoch 1     3 1 7 . 9 0 . 2 5 8     and is it the same again

Nothing here is as large as the dataset: only what was seen is kept.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from lading.loader.audit_finding import some
from lading.loader.audit_watch import Watched, dealt

# What chance would do less often than this is not taken for chance.
_UNLIKELY = math.log(1e-4)


@dataclass(frozen=True)
class OrderFacts:
    """What is known of a loader besides what it did.

    Attributes:
        length: Samples of the dataset.
        sampler: Name of the sampler's type.
        has_set_epoch: Whether the sampler can be told the epoch.
        shuffles: Whether the sampler says that it shuffles.
        is_fixed: Whether the sampler is known to draw nothing by chance.
        drops_last: Whether loader, batch sampler or sampler say ``drop_last``.
        with_replacement: Whether the sampler says that it draws with replacement.
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
        """Whether epochs begin alike and go on differently, and not by chance."""
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
