"""Say what the evidence means: the faults of a map-style loader's order, in plain words.

Apart from ``command``: the verdicts on orders, without a DataLoader in sight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.observe.auditing.finding import (
    DROPPED_TAIL,
    NEVER_REACHED,
    PADDING_TWICE,
    REPEATED,
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
        judged = [self._same_order(), self._same_head(), *self._twice(), self._tail(), self._never()]
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
