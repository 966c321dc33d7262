"""Judge the order of a map-style loader by the indices it asked for.

samples of the data    0 1 2 3 4 5 6 7 8 9
asked for, epoch 0     3 1 7 . 9 0 . 2 5 8     what is missing, what comes twice, where,
asked for, epoch 1     3 1 7 . 9 0 . 2 5 8     and is it the same again
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from lading.loader.audit_finding import (
    DROPPED_TAIL,
    NEVER_REACHED,
    PADDING_TWICE,
    REPEATED,
    SAME_HEAD,
    SAME_ORDER,
    Finding,
    some,
)
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


class OrderJudge:
    """Judge what all ranks of one loader were given."""

    def __init__(self, watched: list[Watched], facts: OrderFacts) -> None:
        self.watched, self.facts = watched, facts
        self.num_ranks = len(watched)
        self.num_epochs = len(watched[0].epochs)

    def findings(self) -> list[Finding]:
        """Return everything that is wrong."""
        judged = [self._same_order(), self._same_head(), *self._twice(), self._tail(), self._never()]
        return [finding for finding in judged if finding is not None]

    @functools.cached_property
    def counts(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The samples that came in each epoch, ascending, and how often each did."""
        orders = [np.concatenate([rank.order(e) for rank in self.watched]) for e in range(self.num_epochs)]
        return [np.unique(order, return_counts=True) for order in orders]

    @functools.cached_property
    def reached(self) -> NDArray[np.int64]:
        """The samples that came in any epoch, ascending."""
        return functools.reduce(np.union1d, [samples for samples, _ in self.counts])

    def _num_missing(self, epoch: int) -> int:
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
        return self.facts.with_replacement or (both and not self._is_shared)

    @functools.cached_property
    def _is_shared(self) -> bool:
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
        missing = {self._num_missing(epoch) for epoch in range(self.num_epochs)}
        if len(missing) != 1 or self.facts.is_limited or self.is_drawn:
            return 0
        (m,) = missing
        batch = self.step_samples // self.num_ranks
        ends = (self.facts.length % max(batch, 1), self.facts.length % max(self.step_samples, 1))
        whole = self.facts.drops_last or (m in ends and not self.facts.takes_part)
        return m if whole and 0 < m < self.step_samples + self.num_ranks else 0

    def _same_order(self) -> Finding | None:
        if not self.is_repeated_run or self.is_in_order:
            return None
        head = self.watched[0].order(0)[:6].tolist()
        mend = "loader.sampler.set_epoch(epoch)  # before each epoch; audit(..., set_epoch=True) if your loop does so"
        if not self.facts.has_set_epoch:
            mend = "DataLoader(..., shuffle=True)  # or seed the sampler's generator once, not in every epoch"
        return Finding(
            SAME_ORDER,
            f"the {self.facts.sampler} shuffles, but in the same way in every epoch.",
            f"{self.num_epochs} epochs, each beginning with samples {', '.join(map(str, head))}",
            mend,
        )

    def _same_head(self) -> Finding | None:
        if self.num_epochs < 2 or (self.facts.with_replacement and not self.is_repeated_run):
            return None
        is_cut = self.is_repeated_run and self._num_never() > self.tail
        batches = min(self._common_batches(rank) for rank in self.watched)
        if not is_cut and not (not self.is_repeated_run and self._is_no_accident(batches)):
            return None
        reached = self.facts.length - self._num_never()
        return Finding(
            SAME_HEAD,
            f"every epoch begins with the same {batches} batches.",
            f"{self.num_epochs} epochs; the first batch always holds samples "
            f"{some(self.watched[0].epochs[0][0].samples.tolist())}; "
            f"{reached} of {self.facts.length} samples were seen",
            "lading.ChunkedDataLoader(dataset, batch_size, chunk_size=...)  # goes on where the last epoch stopped; or "
            "DataLoader(..., shuffle=True)",
        )

    def _common_batches(self, rank: Watched) -> int:
        """Return how many batches at the start of all epochs are the same."""
        for number, batches in enumerate(zip(*rank.epochs, strict=False)):
            if not all(np.array_equal(batches[0].samples, other.samples) for other in batches[1:]):
                return number
        return min(len(epoch) for epoch in rank.epochs)

    def _is_no_accident(self, batches: int) -> bool:
        """Say whether chance would hardly ever give these batches in every epoch."""
        if batches == 0 or self.is_in_order:
            return False
        size = sum(len(b.samples) for b in self.watched[0].epochs[0][:batches])
        return self._is_unlikely(math.lgamma(max(self.facts.length - size, 0) + 1), size=size)

    def _twice(self) -> list[Finding]:
        if self.facts.with_replacement or (self.is_drawn and not self._is_shared):
            return []
        samples, times = self.counts[0]
        num_extra = int(times.sum()) - len(samples)
        if num_extra == 0:
            return []
        again = samples[times > 1]
        return [self._padding(again) if self._is_padding(num_extra) else self._repeated(again)]

    def _is_padding(self, num_extra: int) -> bool:
        """Say whether what comes twice only fills up the end of an epoch."""
        if num_extra >= max(self.step_samples, 1) or self._num_missing(0):
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

    def _padding(self, again: NDArray[np.int64]) -> Finding:
        where = f"{self.num_ranks} ranks" if self.num_ranks > 1 else "full batches"
        return Finding(
            PADDING_TWICE,
            f"samples are repeated to fill up {where}, and nothing tells a metric which rows are repeats.",
            f"{self.facts.length} samples, {int(self.counts[0][1].sum())} rows in an epoch; "
            f"twice came {some(again.tolist())}",
            "lading.Loader(dataset, batch_size)  # marks padding: bill.is_padding, batch['is_padding']",
        )

    def _repeated(self, again: NDArray[np.int64]) -> Finding:
        sample = int(again[0])
        ranks = [rank.rank for rank in self.watched if sample in rank.order(0)]
        times = int(self.counts[0][1][np.searchsorted(self.counts[0][0], sample)])
        if len(ranks) > 1:
            where, mend = f"ranks {some(ranks)}", "DataLoader(..., sampler=DistributedSampler(dataset))"
        else:
            workers = sorted({b.worker for b in self.watched[0].epochs[0] if sample in b.samples})
            where, mend = (
                f"batches of workers {some(workers)}",
                "DataLoader(..., shuffle=True)  # the sampler repeats indices",
            )
        return Finding(
            REPEATED,
            f"{len(again)} of {self.facts.length} samples come more than once in an epoch.",
            f"sample {sample} came {times} times in epoch 0, in {where}",
            f"{mend}  # or lading.Loader(dataset, batch_size)",
        )

    def _tail(self) -> Finding | None:
        if not self.tail:
            return None
        fixed = self._num_never() == self.tail
        which = f"always samples {self._some_never()}" if fixed else "others in each epoch"
        return Finding(
            DROPPED_TAIL,
            f"the last {self.tail} samples of every epoch are dropped, because they do not fill a batch on every rank.",
            f"{self.facts.length} samples, {self.facts.length - self.tail} in each epoch; missing are {which}",
            "DataLoader(..., drop_last=False)  # or lading.Loader(dataset, batch_size), which marks what fills up",
        )

    def _num_never(self) -> int:
        return self.facts.length - len(self.reached)

    def _some_never(self) -> str:
        """Return the first samples that never came, without a table of all samples."""
        ends = np.concatenate([self.reached, [self.facts.length]])
        starts = np.concatenate([[0], self.reached + 1])
        gaps = (range(int(a), int(b)) for a, b in zip(starts, ends, strict=True) if a < b)
        return some(list(islice(chain.from_iterable(gaps), 6)), total=self._num_never())

    def _is_chance(self) -> bool:
        """Say whether chance explains what none of the epochs took."""
        size = len(self.counts[0][0])
        if all(np.array_equal(self.counts[0][0], samples) for samples, _ in self.counts[1:]):
            free = math.lgamma(self.facts.length - size + 1)
            return self.num_epochs > 1 and not self._is_unlikely(free, size=size, ordered=False)
        shares = [self._num_missing(epoch) / self.facts.length for epoch in range(self.num_epochs)]
        expected = self.facts.length * math.prod(shares)
        return self._num_never() <= expected + 5 * math.sqrt(expected) + 1

    def _never(self) -> Finding | None:
        if self.is_drawn or self._num_never() <= self.tail or self._is_chance():
            return None
        if self.facts.is_limited and not self.is_repeated_run:
            return None  # every epoch takes others; the rest is still to come
        return Finding(
            NEVER_REACHED,
            f"{self._num_never()} of {self.facts.length} samples are never reached.",
            f"in {self.num_epochs} epochs the {self.facts.sampler} gave no sample {self._some_never()}",
            "DataLoader(..., sampler=RandomSampler(dataset))  # if a split is meant: torch.utils.data.Subset",
        )
