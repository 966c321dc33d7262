"""Judge the order of a map-style loader, whose samples are known by their indices.

    samples of the data    0 1 2 3 4 5 6 7 8 9
    asked for, epoch 0     3 1 7 . 9 0 . 2 5 8     what is missing, what comes twice, where,
    asked for, epoch 1     3 1 7 . 9 0 . 2 5 8     and is it the same again

Nothing here is as large as the dataset: only what was seen is kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from itertools import chain, islice, takewhile, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler

from lading.kits.audit import finding as faults
from lading.kits.audit.finding import Finding, Judge, some
from lading.kits.audit.watch import DRAWS, Pass, alike, is_planned, watch_draws
from lading.observe.dataloader import order_of
from lading.order.chunked_sampler import ChunkedSampler

# What chance would do less often than this is not taken for chance.
_UNLIKELY = math.log(1e-4)

# Samplers that draw nothing by chance, or always from the same samples.
_FIXED = (list, tuple, range, SequentialSampler, SubsetRandomSampler)


class OrderJudge(Judge):
    """Judges which indices each rank of a loader was given.

    Args:
        loader: The loader that was watched.
        ranks: The passes of each rank, epoch by epoch.
        most: Batches of an epoch that were watched, at most.
    """

    def __init__(self, loader: Any, ranks: list[list[Pass]], most: int) -> None:
        super().__init__(loader, ranks, is_limited=any(len(p.batches) >= most for passes in ranks for p in passes))
        self.length, self.order = len(loader.dataset), order_of(loader)
        self.sampler = type(self.order).__name__
        self.has_set_epoch = hasattr(self.order, "set_epoch")
        self.draws_again = bool(getattr(self.order, "replacement", False))
        planned = (getattr(loader, name, None) for name in ("mixture", "sample_weights"))
        self.with_replacement = self.draws_again or any(asked is not None for asked in planned)

    def _judged(self) -> Iterable[Finding | None]:
        yield from (self._same_order(), self._same_head(), self._twice(), self._tail(), self._never())
        yield from (self._left_out(), self._replacement(), self._same_numbers())

    def _same_order(self) -> Finding | None:
        if not self.is_repeated_run or self.is_in_order:
            return None
        fix = "loader.sampler.set_epoch(epoch)  # before each epoch; audit(..., set_epoch=True) if your loop does so"
        if not self.has_set_epoch:
            fix = "DataLoader(..., shuffle=True)  # or seed the sampler's generator once, not in every epoch"
        return Finding(
            faults.SAME_ORDER,
            f"the {self.sampler} shuffles, but in the same way in every epoch.",
            f"{self.num_epochs} epochs, each beginning with samples {', '.join(map(str, self.first.order[:6]))}",
            fix,
        )

    def _same_head(self) -> Finding | None:
        if self.num_epochs < 2 or (self.with_replacement and not self.is_repeated_run):
            return None
        is_cut = self.is_repeated_run and self.num_never > self.tail
        if self.common_batches == 0 or not (is_cut or self.has_common_head):
            return None
        return Finding(
            faults.SAME_HEAD,
            f"every epoch begins with the same {self.common_batches} batches.",
            f"{self.num_epochs} epochs; the first batch always holds samples "
            f"{some(self.first.batches[0].samples.tolist())}; {len(self.reached)} of {self.length} samples were seen",
            "lading.ChunkedDataLoader(dataset, batch_size, chunk_size=...)  # continues where the last one stopped; or "
            "DataLoader(..., shuffle=True)",
        )

    def _twice(self) -> Finding | None:
        if self.with_replacement or (self.is_drawn and not self.is_shared):
            return None
        epoch = next((e for e, (_, times) in enumerate(self.counts) if (times > 1).any()), 0)
        samples, times = self.counts[epoch]
        num_rows, again = int(times.sum()), samples[times > 1]
        if not len(again):
            return None
        if not self._is_padding(epoch, num_rows - len(samples)):
            return self._repeated(epoch, again, times[times > 1])
        where = f"{self.num_ranks} ranks" if self.num_ranks > 1 else "full batches"
        return Finding(
            faults.PADDING_TWICE,
            f"samples are repeated to fill up {where}, and nothing tells a metric which rows are repeats.",
            f"{self.length} samples, {num_rows} rows in an epoch; twice came {some(again.tolist())}",
            "lading.Loader(dataset, batch_size)  # marks padding: bill.is_padding, batch['is_padding']",
        )

    def _repeated(self, epoch: int, again: NDArray[np.int64], times: NDArray[np.int64]) -> Finding:
        most = int(again[np.argmax(times)])
        ranks = [rank for rank, passes in enumerate(self.ranks) if most in passes[epoch].order]
        if len(ranks) > 1 and not self.is_undivided:
            sizes = ", ".join(f"rank {rank} has {len(share)}" for rank, share in enumerate(self.shares[:4]))
            return Finding(
                faults.REPEATED,
                f"the ranks' shares overlap: {len(again)} of {self.length} samples are on several ranks.",
                f"{sizes} samples; sample {most} is on ranks {some(ranks)}",
                "Subset(dataset, range(rank, len(dataset), world_size))  # shares that divide the data; or "
                "DistributedSampler(dataset)",
            )
        where, fix = f"ranks {some(ranks)}", "DataLoader(..., sampler=DistributedSampler(dataset))"
        if len(ranks) == 1:
            workers = {batch.worker for batch in self.ranks[ranks[0]][epoch].batches if most in batch.samples}
            where, fix = f"batches of workers {some(workers)}", "DataLoader(..., shuffle=True)"
        return Finding(
            faults.REPEATED,
            f"{len(again)} of {self.length} samples come more than once in an epoch.",
            f"sample {most} came {times.max()} times in epoch {epoch}, in {where}",
            f"{fix}  # or lading.Loader(dataset, batch_size)",
        )

    def _tail(self) -> Finding | None:
        if not self.tail:
            return None
        is_fixed = self.num_never == self.tail
        which = f"always samples {self._some_never()}" if is_fixed else "others in each epoch"
        return Finding(
            faults.DROPPED_TAIL,
            f"the last {self.tail} samples of every epoch are dropped: they do not fill a batch on every rank.",
            f"{self.length} samples, {self.length - self.tail} in each epoch; missing are {which}",
            "DataLoader(..., drop_last=False)  # or lading.Loader(dataset, batch_size), which marks what fills up",
        )

    def _never(self) -> Finding | None:
        if self.is_drawn or self.num_never <= self.tail or self._is_chance():
            return None
        if self.is_limited and not self.is_repeated_run:
            return None  # every epoch takes others; the rest is still to come
        return Finding(
            faults.NEVER_REACHED,
            f"{self.num_never} of {self.length} samples are never reached.",
            f"in {self.num_epochs} epochs the {self.sampler} gave no sample {self._some_never()}",
            "DataLoader(..., sampler=RandomSampler(dataset))  # if a split is meant: torch.utils.data.Subset",
        )

    def _left_out(self) -> Finding | None:
        """Find samples that an epoch does not have, others in each; a note where the sampler says that it is a part."""
        missing = [self.length - len(samples) for samples, _ in self.counts]
        if not max(missing) or self.is_limited or self.is_drawn or self.tail or self.takes_part:
            return None
        if self.num_never == max(missing) or self._never() is not None:
            return None  # always the same ones: they are never reached
        times = [f"epoch {epoch} has {self._count(epoch)}" for epoch in range(min(self.num_epochs, 3))]
        rows = int(max(counted.sum() for _, counted in self.counts))
        is_meant = max(rows, _length(self.order) * self.num_ranks) < self.length
        return Finding(
            faults.LEFT_OUT,
            f"up to {max(missing)} of {self.length} samples are left out of an epoch, others in each.",
            "; ".join(times),
            "DataLoader(..., shuffle=True)  # each once in an epoch; if a part is meant: RandomSampler(dataset, "
            "num_samples=...)",
            level="note" if is_meant else "fault",
        )

    def _count(self, epoch: int) -> str:
        (samples, times), reached = self.counts[epoch], set(self.counts[epoch][0].tolist())
        absent = islice((i for i in range(self.length) if i not in reached), 6)
        lost = some(absent, total=self.length - len(samples))
        return f"{len(samples)} different samples in {times.sum()} rows" + (f", not {lost}" if lost else "")

    @property
    def takes_part(self) -> bool:
        """Whether an epoch is a part of the data by what is known of the loader."""
        takes_some = isinstance(self.order, RandomSampler) and self.order.num_samples < self.length
        return takes_some or isinstance(self.order, ChunkedSampler) or is_planned(self.loader)

    def _replacement(self) -> Finding | None:
        """Mention that samples are drawn with replacement, and how much of the data that reaches."""
        if not self.draws_again and (self.with_replacement or not self.is_drawn):
            return None
        samples, times = self.counts[0]
        return Finding(
            faults.REPLACEMENT,
            f"the {self.sampler} draws with replacement: an epoch repeats some samples and leaves others out.",
            f"{times.sum()} draws of {self.length} samples reached {len(samples)} ({len(samples) / self.length:.0%}) "
            f"in an epoch, {len(self.reached)} in {self.num_epochs}",
            "lading.Loader(dataset, batch_size, sample_weights=weights)  # each comes as often as it should, in every "
            "epoch; or DataLoader(..., shuffle=True)",
            level="note",
        )

    def _same_numbers(self) -> Finding | None:
        """Find random numbers that run alike in all workers: each is asked for one sample, again and again."""
        if is_planned(self.loader) or self.loader.num_workers < 2 or not len(self.first.order):
            return None
        index = int(self.first.order[0])
        draws = watch_draws(self.loader, index)
        num_different = len(set(draws[0]))
        if num_different == 1 or any(other != draws[0] for other in draws):
            return None
        return Finding(
            faults.SAME_NUMBERS,
            f"{type(self.loader.dataset).__name__} draws random numbers, and every worker draws the same ones.",
            f"sample {index}, read {DRAWS} times: {num_different} different results, the same sequence in workers "
            f"{some(range(len(draws)))}",
            "rng = np.random.default_rng(torch.initial_seed())  # when the first sample is read, not in __init__; or "
            "draw with torch.rand, which torch seeds for each worker",
        )

    @functools.cached_property
    def counts(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The samples that came in each epoch, ascending, and how often each did."""
        epochs = zip(*self.ranks, strict=True)
        return [np.unique(np.concatenate([p.order for p in passes]), return_counts=True) for passes in epochs]

    @functools.cached_property
    def reached(self) -> NDArray[np.int64]:
        """The samples that came in any epoch, ascending."""
        return functools.reduce(np.union1d, [samples for samples, _ in self.counts])

    @property
    def num_never(self) -> int:
        """How many samples came in no epoch."""
        return self.length - len(self.reached)

    def _some_never(self) -> str:
        reached = set(self.reached.tolist())
        return some(islice((i for i in range(self.length) if i not in reached), 6), total=self.num_never)

    @functools.cached_property
    def step_samples(self) -> int:
        """Samples of the largest step, all ranks together."""
        sizes = [len(b.samples) for passes in self.ranks for p in passes for b in p.batches]
        return max(sizes, default=0) * self.num_ranks

    @functools.cached_property
    def is_drawn(self) -> bool:
        """Whether samples are drawn with replacement: some come twice, others not at all, as chance would do it."""
        both = any((times > 1).any() and len(samples) < self.length for samples, times in self.counts)
        return self.with_replacement or (both and not self.is_shared and all(map(self._is_draw, self.counts)))

    def _is_draw(self, counts: tuple[NDArray[np.int64], NDArray[np.int64]]) -> bool:
        """Say whether draws with replacement explain what came how often, whatever the weights of the samples.

        With rates r of the samples, sum(e^-r) of them are missing, sum(r e^-r) come once and at least sum(r^2 e^-r) / 2
        come more often. By Cauchy and Schwarz: once^2 <= 2 * missing * more.
        """
        samples, times = counts
        once, more = int((times == 1).sum()), int((times > 1).sum())
        least = once**2 / (2 * max(self.length - len(samples), 1))
        return more >= least - 5 * math.sqrt(least) - 1

    @property
    def is_shared(self) -> bool:
        """Whether samples are on several ranks in the same epoch, more of them than padding explains."""
        return self.num_shared >= max(self.step_samples, 1)

    @functools.cached_property
    def is_repeated_run(self) -> bool:
        """Whether every epoch was the same, on every rank, and not by chance."""
        size = min(sum(len(passes[0].order) for passes in self.ranks), self.length)
        return self.is_same_again(self.ranks) and self._is_unlikely(size)

    def _is_unlikely(self, size: int, *, ordered: bool = True) -> bool:
        """Say whether chance would hardly ever draw the same samples (in the same order) in every epoch."""
        ways = math.lgamma(self.length + 1) - math.lgamma(max(self.length - size, 0) + 1)
        ways -= 0.0 if ordered else math.lgamma(size + 1)
        is_fixed = self.has_set_epoch or isinstance(self.order, _FIXED)
        return is_fixed or -ways * (self.num_epochs - 1) < _UNLIKELY

    @functools.cached_property
    def is_in_order(self) -> bool:
        """Whether samples come in the order of the dataset, as for evaluation, dealt to one rank after the other."""
        steps = zip_longest(*(passes[0].order.tolist() for passes in self.ranks))
        firsts = list(dict.fromkeys(i for i in chain.from_iterable(steps) if i is not None))  # padding repeats
        return firsts == sorted(firsts) and getattr(self.order, "shuffle", False) is not True

    @functools.cached_property
    def tail(self) -> int:
        """Samples missing at the end of every epoch, where that is all that is missing; else 0."""
        missing = {self.length - len(samples) for samples, _ in self.counts}
        if len(missing) != 1 or self.is_limited or self.is_drawn:
            return 0
        (m,) = missing
        parts = (self.loader, self.loader.batch_sampler, self.order)
        drops_last = any(getattr(part, "drop_last", False) for part in parts)
        if self.step_samples == 0:
            return m if drops_last else 0  # not one batch was full
        ends = (self.length % (self.step_samples // self.num_ranks), self.length % self.step_samples)
        is_tail = drops_last or (m in ends and not self.takes_part)
        return m if is_tail and 0 < m < self.step_samples + self.num_ranks else 0

    @functools.cached_property
    def common_batches(self) -> int:
        """How many batches at the start of all epochs are the same, on every rank."""
        numbered = [zip(*(p.batches for p in passes), strict=False) for passes in self.ranks]
        return min(sum(takewhile(bool, (alike(b.samples for b in same) for same in rank))) for rank in numbered)

    @property
    def has_common_head(self) -> bool:
        """Whether epochs begin alike and continue differently, and not by chance."""
        if self.is_repeated_run or self.is_in_order:
            return False
        return self._is_unlikely(sum(len(b.samples) for b in self.first.batches[: self.common_batches]))

    def _is_padding(self, epoch: int, num_extra: int) -> bool:
        """Say whether what comes twice only fills up the end of an epoch."""
        if num_extra >= max(self.step_samples, 1) or len(self.counts[epoch][0]) < self.length:
            return False
        last = max(len(passes[epoch].batches) for passes in self.ranks) - 1
        before = Pass([batch for passes in self.ranks for batch in passes[epoch].batches[:last]]).order
        return len(np.unique(before)) == len(before)

    def _is_chance(self) -> bool:
        """Say whether chance explains what none of the epochs took."""
        size = len(self.counts[0][0])
        if size == 0:
            return False
        if alike(samples for samples, _ in self.counts):
            return self.num_epochs > 1 and not self._is_unlikely(size, ordered=False)
        expected = self.length * math.prod(1 - len(samples) / self.length for samples, _ in self.counts)
        return self.num_never <= expected + 5 * math.sqrt(expected) + 1


def _length(sampler: Any) -> int:
    """Return how many samples a sampler says that it gives; 0 where it does not."""
    try:
        return len(sampler)
    except TypeError:
        return 0
