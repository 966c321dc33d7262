"""Judge a stream by the content of its samples.

A stream's samples have no index, so they are known by a hash of what they
hold. What several workers give together is compared with what one reader
gives alone:

    one reader     a b c d e f
    two workers    a b c d e f | a b c d e f      everything twice: nobody shards the stream
    two workers    a c e       | b d              f is never reached
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from lading.loader.audit_finding import (
    DROPPED_TAIL,
    NEVER_REACHED,
    PADDING_TWICE,
    REPEATED,
    SAME_HEAD,
    SAME_NUMBERS,
    SAME_ORDER,
    Finding,
    some,
)
from lading.loader.audit_stream_watch import StreamPass

_FEW = 4


@dataclass(frozen=True)
class StreamFacts:
    """What is known of a stream besides what it gave.

    Attributes:
        source: Name of the dataset's type.
        batch_size: Samples of a batch, or None.
        num_workers: Workers of the loader.
        drops_last: Whether short batches are dropped.
        length: What ``len(dataset)`` says, or None.
        has_set_epoch: Whether the dataset can be told the epoch.
        is_limited: Whether the training loop takes only some batches of an epoch.
    """

    source: str
    batch_size: int | None
    num_workers: int
    drops_last: bool
    length: int | None
    has_set_epoch: bool
    is_limited: bool = False


class StreamJudge:
    """Judge what the workers of each rank gave, against what one reader gives.

    Args:
        ranks: The passes of each rank.
        alone: Two passes of one reader, where there are several workers; else empty.
        facts: What else is known.
    """

    def __init__(self, ranks: list[list[StreamPass]], alone: list[StreamPass], facts: StreamFacts) -> None:
        self.ranks, self.alone, self.facts = ranks, alone, facts
        self.first = ranks[0][0]

    def findings(self) -> list[Finding]:
        """Return everything that is wrong."""
        numbers = self._same_numbers()
        judged = [
            numbers,
            None if numbers is not None and self._all_alike() else self._repeated_by_workers(),
            self._repeated_by_ranks(),
            self._never(),
            self._same_order(),
            self._same_head(),
            self._tail(),
        ]
        return [finding for finding in judged if finding is not None]

    def _is_random(self) -> bool:
        return len(self.alone) > 1 and self.alone[0].order != self.alone[1].order

    def _all_alike(self) -> bool:
        streams = list(self.first.by_worker.values())
        return len(streams) > 1 and all(stream == streams[0] for stream in streams[1:])

    def _same_numbers(self) -> Finding | None:
        """Find a part of the samples that runs alike in all workers, although it is random or the rest differs."""
        workers = sorted(self.first.by_worker)
        if len(workers) < 2 or (self._all_alike() and not self._is_random()):
            return None
        for part in self.first.parts():
            columns = [self.first.column(worker, part) for worker in workers]
            size = min(map(len, columns))
            heads = [column[:size] for column in columns]
            if size >= _FEW and len(set(heads[0])) == size and all(h == heads[0] for h in heads) and self._varies(part):
                return Finding(
                    SAME_NUMBERS,
                    f"{part or 'the sample'} holds the same numbers in every worker.",
                    f"its first {size} values are equal in workers {some(workers)}",
                    "rng = np.random.default_rng(torch.initial_seed())  # in __iter__: workers have different seeds",
                )
        return None

    def _varies(self, part: str) -> bool:
        is_float = self.first.is_float(part)
        if len(self.alone) < 2:
            return is_float
        return is_float or self.alone[0].column(0, part) != self.alone[1].column(0, part)

    def _repeated_by_workers(self) -> Finding | None:
        if not self.alone or self.facts.is_limited:
            return None
        together, alone = Counter(self.first.order), Counter(self.alone[0].order)
        extra = sum((together - alone).values())
        too_many = len(self.first.order) > len(self.alone[0].order)
        if not too_many or not extra:
            return None
        return Finding(
            REPEATED,
            f"{self.facts.num_workers} workers read the same samples: the stream is not divided among them.",
            f"one reader gives {len(self.alone[0].order)} samples, {self.facts.num_workers} workers give "
            f"{len(self.first.order)}{self._example()}",
            "itertools.islice(stream, info.id, None, info.num_workers)  # with info = get_worker_info(); or "
            "lading.TaggedIterableDataset(source)",
        )

    def _example(self) -> str:
        owners: dict[int, set[int]] = {}
        for worker, stream in self.first.by_worker.items():
            for sample in stream:
                owners.setdefault(sample, set()).add(worker)
        shared = [sorted(workers) for workers in owners.values() if len(workers) > 1]
        return f"; {len(shared)} samples came from several workers, the first from {some(shared[0])}" if shared else ""

    def _repeated_by_ranks(self) -> Finding | None:
        if len(self.ranks) < 2:
            return None
        orders = [rank[0].order for rank in self.ranks]
        inside = sum(len(order) - len(set(order)) for order in orders)
        extra = sum(map(len, orders)) - len(set().union(*orders)) - inside
        if extra <= 0:
            return None
        total = sum(map(len, orders))
        if extra < (self.facts.batch_size or 1) * len(self.ranks) and extra * 2 < total:
            return Finding(
                PADDING_TWICE,
                f"samples are repeated to fill up {len(self.ranks)} ranks, and nothing tells which rows are repeats.",
                f"{total} rows on all ranks, {extra} of them repeat a sample of another rank",
                "lading.TaggedIterableDataset(source, batch_size)  # marks padding",
            )
        return Finding(
            REPEATED,
            f"{len(self.ranks)} ranks read the same samples: the stream is not divided among them.",
            f"{total} samples on all ranks, {extra} of them are on several ranks",
            "itertools.islice(stream, rank, None, world_size)  # or lading.TaggedIterableDataset(source)",
        )

    def _never(self) -> Finding | None:
        if self.facts.is_limited:
            return None
        given, expected = len(self.first.order), self.facts.length
        who = "len(dataset)"
        if self.alone:
            who, expected = "one reader", len(self.alone[0].order)
            lost = sum((Counter(self.alone[0].order) - Counter(self.first.order)).values())
            missing = lost if not self._is_random() else max(0, expected - given)
        else:
            missing = max(0, (expected or 0) - given) if len(self.ranks) == 1 else 0
        if not missing:
            return None
        return Finding(
            NEVER_REACHED,
            f"{missing} of {expected} samples of the stream are never reached.",
            f"{who} gives {expected} samples, the loader with {self.facts.num_workers} workers gives {given}",
            "itertools.islice(stream, info.id, None, info.num_workers)  # every sample to exactly one worker; or "
            "lading.TaggedIterableDataset(source)",
        )

    def _same_order(self) -> Finding | None:
        if not self.facts.has_set_epoch or not self._is_same_again() or self.first.is_sorted():
            return None
        return Finding(
            SAME_ORDER,
            f"the {self.facts.source} can be told the epoch, but gives the same order in every epoch.",
            f"{len(self.ranks[0])} epochs, each with the same {len(self.first.order)} samples in the same order",
            "dataset.set_epoch(epoch)  # before each epoch; audit(..., set_epoch=True) if your loop does so",
        )

    def _same_head(self) -> Finding | None:
        total = self.facts.length
        is_cut = self.facts.is_limited or (total is not None and len(self.first.order) < total and not self.alone)
        if not is_cut or not self._is_same_again() or self._limit_takes_all():
            return None
        return Finding(
            SAME_HEAD,
            f"every epoch begins with the same {self.first.num_batches} batches, and stops there.",
            f"{len(self.ranks[0])} epochs of {len(self.first.order)} samples, always the same ones"
            + (f", of {total}" if total is not None else ""),
            "lading.TaggedIterableDataset(source, batch_size).starting_at(batch)  # goes on where it stopped",
        )

    def _limit_takes_all(self) -> bool:
        return self.facts.is_limited and not self.first.was_cut

    def _is_same_again(self) -> bool:
        return len(self.ranks[0]) > 1 and all(p.order == self.first.order for p in self.ranks[0][1:])

    def _tail(self) -> Finding | None:
        short = self.first.short_batches
        if not self.facts.drops_last or not short:
            return None
        total = sum(short.values())
        return Finding(
            DROPPED_TAIL,
            f"{total} samples at the end of every epoch are dropped, because they do not fill a batch.",
            "; ".join(f"worker {worker} ends with {size} samples" for worker, size in sorted(short.items()))
            + f", a batch has {self.facts.batch_size}",
            "DataLoader(..., drop_last=False)",
        )
