"""Say what the evidence means: the faults of a map-style loader's order, in plain words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.observe.auditing.finding import (
    DROPPED_TAIL,
    NEVER_REACHED,
    PADDING_TWICE,
    REPEATED,
    REPLACEMENT,
    SAME_HEAD,
    SAME_ORDER,
    Finding,
    some,
)
from lading.observe.auditing.order import OrderEvidence


class OrderJudge:
    """Judge what all ranks of one loader were given."""

    def __init__(self, seen: OrderEvidence) -> None:
        self.seen, self.facts = seen, seen.facts

    def findings(self) -> list[Finding]:
        """Return everything that is wrong."""
        judged = [
            *(self._same_order(), self._same_head(), *self._twice(), self._tail(), self._never()),
            self._replacement(),
        ]
        return [finding for finding in judged if finding is not None]

    def _same_order(self) -> Finding | None:
        if not self.seen.is_repeated_run or self.seen.is_in_order:
            return None
        head = self.seen.watched[0].order(0)[:6].tolist()
        fix = "loader.sampler.set_epoch(epoch)  # before each epoch; audit(..., set_epoch=True) if your loop does so"
        if not self.facts.has_set_epoch:
            fix = "DataLoader(..., shuffle=True)  # or seed the sampler's generator once, not in every epoch"
        return Finding(
            SAME_ORDER,
            f"the {self.facts.sampler} shuffles, but in the same way in every epoch.",
            f"{self.seen.num_epochs} epochs, each beginning with samples {', '.join(map(str, head))}",
            fix,
        )

    def _same_head(self) -> Finding | None:
        if self.seen.num_epochs < 2 or (self.facts.with_replacement and not self.seen.is_repeated_run):
            return None
        is_cut = self.seen.is_repeated_run and self.seen.num_never > self.seen.tail
        batches = self.seen.common_batches
        if batches == 0 or not (is_cut or self.seen.has_common_head):
            return None
        reached = self.facts.length - self.seen.num_never
        return Finding(
            SAME_HEAD,
            f"every epoch begins with the same {batches} batches.",
            f"{self.seen.num_epochs} epochs; the first batch always holds samples "
            f"{some(self.seen.watched[0].epochs[0][0].samples.tolist())}; "
            f"{reached} of {self.facts.length} samples were seen",
            "lading.ChunkedDataLoader(dataset, batch_size, chunk_size=...)  # continues where the last one stopped; or "
            "DataLoader(..., shuffle=True)",
        )

    def _twice(self) -> list[Finding]:
        if self.facts.with_replacement or (self.seen.is_drawn and not self.seen.is_shared):
            return []
        samples, times = self.seen.counts[0]
        num_extra = int(times.sum()) - len(samples)
        if num_extra == 0:
            return []
        again = samples[times > 1]
        return [self._padding(again) if self.seen.is_padding(num_extra) else self._repeated(again)]

    def _padding(self, again: NDArray[np.int64]) -> Finding:
        where = f"{self.seen.num_ranks} ranks" if self.seen.num_ranks > 1 else "full batches"
        return Finding(
            PADDING_TWICE,
            f"samples are repeated to fill up {where}, and nothing tells a metric which rows are repeats.",
            f"{self.facts.length} samples, {int(self.seen.counts[0][1].sum())} rows in an epoch; "
            f"twice came {some(again.tolist())}",
            "lading.Loader(dataset, batch_size)  # marks padding: bill.is_padding, batch['is_padding']",
        )

    def _repeated(self, again: NDArray[np.int64]) -> Finding:
        sample = int(again[0])
        ranks = [rank.rank for rank in self.seen.watched if sample in rank.order(0)]
        times = int(self.seen.counts[0][1][np.searchsorted(self.seen.counts[0][0], sample)])
        if len(ranks) > 1 and not self._is_undivided():
            return self._overlapping(ranks, again)
        if len(ranks) > 1:
            where, fix = f"ranks {some(ranks)}", "DataLoader(..., sampler=DistributedSampler(dataset))"
        else:
            workers = sorted({b.worker for b in self.seen.watched[0].epochs[0] if sample in b.samples})
            where, fix = f"batches of workers {some(workers)}", "DataLoader(..., shuffle=True)"
        return Finding(
            REPEATED,
            f"{len(again)} of {self.facts.length} samples come more than once in an epoch.",
            f"sample {sample} came {times} times in epoch 0, in {where}",
            f"{fix}  # or lading.Loader(dataset, batch_size)",
        )

    def _is_undivided(self) -> bool:
        """Say whether every rank has the same samples: nothing divides them."""
        samples = [set(rank.order(0).tolist()) for rank in self.seen.watched]
        return all(other == samples[0] for other in samples[1:])

    def _overlapping(self, ranks: list[int], again: NDArray[np.int64]) -> Finding:
        sizes = ", ".join(f"rank {rank.rank} has {len(set(rank.order(0).tolist()))}" for rank in self.seen.watched[:4])
        return Finding(
            REPEATED,
            f"the ranks' shares overlap: {len(again)} of {self.facts.length} samples are on several ranks.",
            f"{sizes} samples; sample {int(again[0])} is on ranks {some(ranks)}",
            "Subset(dataset, range(rank, len(dataset), world_size))  # shares that divide the data; or "
            "DistributedSampler(dataset)",
        )

    def _replacement(self) -> Finding | None:
        """Mention that samples are drawn with replacement, and how much of the data that reaches."""
        if not self.facts.draws_again:
            return None
        drawn, reached = int(self.seen.counts[0][1].sum()), len(self.seen.counts[0][0])
        return Finding(
            REPLACEMENT,
            f"the {self.facts.sampler} draws with replacement: an epoch repeats some samples and leaves others out.",
            f"{drawn} draws of {self.facts.length} samples reached {reached} ({reached / self.facts.length:.0%}) in an "
            f"epoch, {self.facts.length - self.seen.num_never} in {self.seen.num_epochs}",
            "lading.Loader(sources, batch_size, weights=...)  # weights without replacement: pass by pass; or "
            "DataLoader(..., shuffle=True)",
            level="note",
        )

    def _tail(self) -> Finding | None:
        if not self.seen.tail:
            return None
        fixed = self.seen.num_never == self.seen.tail
        which = f"always samples {self.seen.some_never()}" if fixed else "others in each epoch"
        return Finding(
            DROPPED_TAIL,
            f"the last {self.seen.tail} samples of every epoch are dropped: they do not fill a batch on every rank.",
            f"{self.facts.length} samples, {self.facts.length - self.seen.tail} in each epoch; missing are {which}",
            "DataLoader(..., drop_last=False)  # or lading.Loader(dataset, batch_size), which marks what fills up",
        )

    def _never(self) -> Finding | None:
        if self.seen.is_drawn or self.seen.num_never <= self.seen.tail or self.seen.is_chance():
            return None
        if self.facts.is_limited and not self.seen.is_repeated_run:
            return None  # every epoch takes others; the rest is still to come
        return Finding(
            NEVER_REACHED,
            f"{self.seen.num_never} of {self.facts.length} samples are never reached.",
            f"in {self.seen.num_epochs} epochs the {self.facts.sampler} gave no sample {self.seen.some_never()}",
            "DataLoader(..., sampler=RandomSampler(dataset))  # if a split is meant: torch.utils.data.Subset",
        )
