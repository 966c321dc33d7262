"""Judge a stream by the content of its samples.

A stream's samples have no index, so they are known by a hash of what they
hold. What several workers give together is compared with what one reader
gives alone:

    one reader     a b c d e f
    two workers    a b c d e f | a b c d e f      everything twice: the stream is not sharded
    two workers    a c e       | b d              f is never reached
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from lading.kits.audit import finding as faults
from lading.kits.audit.finding import Finding, Judge, some
from lading.kits.audit.watch import Pass, alike
from lading.source.stream.torch import TaggedIterableDataset

_FEW = 4


class StreamJudge(Judge):
    """Judges what the workers of each rank gave, against what one reader gives.

    Args:
        loader: The loader that was watched.
        ranks: The passes of each rank, epoch by epoch.
        alone: Two passes of one reader, where there are several workers; else empty.
        is_limited: Whether the training loop takes only some batches of an epoch.
    """

    def __init__(self, loader: Any, ranks: list[list[Pass]], alone: list[Pass], *, is_limited: bool) -> None:
        was_cut = any(p.was_cut for p in (*ranks[0], *alone))
        super().__init__(loader, ranks, is_limited=is_limited or was_cut)
        self.alone, self.num_workers, self.workers = alone, loader.num_workers, self.first.by_worker
        self.length = _declared_length(loader.dataset)
        self.source, self.given = type(loader.dataset).__name__, len(self.first.order)

    def _judged(self) -> Iterable[Finding | None]:
        numbers = self._same_numbers()
        yield numbers
        if numbers is None or not self._all_alike():
            yield self._repeated_by_workers()
        yield from (self._repeated_by_ranks(), self._never(), self._same_order(), self._same_head(), self._tail())

    def _is_random(self) -> bool:
        return len(self.alone) > 1 and not alike(p.order for p in self.alone)

    def _all_alike(self) -> bool:
        return len(self.workers) > 1 and alike(worker.order for worker in self.workers.values())

    def _same_numbers(self) -> Finding | None:
        """Find a part of the samples that runs alike in all workers, although it is random or the rest differs."""
        if len(self.workers) < 2 or (self._all_alike() and not self._is_random()):
            return None
        heads = [row for worker in self.workers.values() for row in worker.parts[:1]]
        for part in sorted({part for row in heads for part in row}):
            columns = [worker.column(part) for worker in self.workers.values()]
            size = min(map(len, columns))
            is_same = all(column[:size] == columns[0][:size] for column in columns)
            varies = any(row[part][1] for row in heads if part in row) or self._varies(part)
            if size >= _FEW and len(set(columns[0][:size])) == size and is_same and varies:
                return Finding(
                    faults.SAME_NUMBERS,
                    f"{part or 'the sample'} holds the same numbers in every worker.",
                    f"its first {size} values are equal in workers {some(self.workers)}",
                    "rng = np.random.default_rng(torch.initial_seed())  # in __iter__: workers have different seeds",
                )
        return None

    def _varies(self, part: str) -> bool:
        return len(self.alone) > 1 and self.alone[0].column(part) != self.alone[1].column(part)

    def _repeated_by_workers(self) -> Finding | None:
        if not self.alone or self.is_limited:
            return None
        again = len(Counter(self.first.order.tolist()) - Counter(self.alone[0].order.tolist()))
        num_alone = len(self.alone[0].order)
        if self.given <= num_alone or not again:
            return None
        if self._all_alike():
            return Finding(
                faults.REPEATED,
                f"{self.num_workers} workers read the same samples: the stream is not divided among them.",
                f"one reader gives {num_alone} samples, {self.num_workers} workers give {self.given}{self._example()}",
                "itertools.islice(stream, info.id, None, info.num_workers)  # with info = get_worker_info(); or "
                "lading.TaggedIterableDataset(source)",
            )
        sizes = ", ".join(f"worker {number} gives {len(w.order)}" for number, w in list(self.workers.items())[:4])
        return Finding(
            faults.REPEATED,
            f"the shards of {self.num_workers} workers overlap: {again} samples come more often than once.",
            f"one reader gives {num_alone} samples, {sizes}{self._example()}",
            "shards = files[info.id :: info.num_workers]  # or start, stop = n * id // w, n * (id + 1) // w: where one "
            "ends the next begins; or lading.TaggedIterableDataset(source)",
        )

    def _example(self) -> str:
        owners: dict[int, set[int]] = {}
        for number, worker in self.workers.items():
            for sample in worker.order.tolist():
                owners.setdefault(sample, set()).add(number)
        shared = [workers for workers in owners.values() if len(workers) > 1]
        return f"; {len(shared)} samples came from several workers, the first from {some(shared[0])}" if shared else ""

    def _repeated_by_ranks(self) -> Finding | None:
        extra = sum(map(len, self.shares)) - len(np.unique(np.concatenate(self.shares)))
        if not extra:
            return None
        orders = [passes[0].order for passes in self.ranks]
        total = sum(map(len, orders))
        if extra < (self.loader.batch_size or 1) * self.num_ranks and extra * 2 < total:
            return Finding(
                faults.PADDING_TWICE,
                f"samples are repeated to fill up {self.num_ranks} ranks, and nothing tells which rows are repeats.",
                f"{total} rows on all ranks, {extra} of them repeat a sample of another rank",
                "lading.TaggedIterableDataset(source, batch_size)  # marks padding",
            )
        if self.is_undivided:
            return Finding(
                faults.REPEATED,
                f"{self.num_ranks} ranks read the same samples: the stream is not divided among them.",
                f"{total} rows on all ranks, {self.num_shared} samples are on several ranks",
                "itertools.islice(stream, rank, None, world_size)  # or lading.TaggedIterableDataset(source)",
            )
        return Finding(
            faults.REPEATED,
            f"the shards of {self.num_ranks} ranks overlap: {self.num_shared} samples are on several ranks.",
            "; ".join(f"rank {rank} gives {len(order)} samples" for rank, order in enumerate(orders[:4])),
            "shards = files[rank::world_size]  # or start, stop = n * rank // w, n * (rank + 1) // w: where one "
            "ends the next begins; or lading.TaggedIterableDataset(source)",
        )

    def _never(self) -> Finding | None:
        who, expected = ("one reader", len(self.alone[0].order)) if self.alone else ("len(dataset)", self.length or 0)
        missing, extra = max(0, expected - self.given), 0
        if self.alone and alike(np.sort(p.order) for p in self.alone):  # the same in every pass, in whichever order
            wanted, given = (Counter(p.order.tolist()) for p in (self.alone[0], self.first))
            missing, extra = (wanted - given).total(), (given - wanted).total()
        if self.is_limited or not missing or (self.num_ranks > 1 and not self.alone):
            return None
        if extra and self.given <= expected:
            return self._divided_differently(expected, missing, extra)
        return Finding(
            faults.NEVER_REACHED,
            f"{missing} of {expected} samples of the stream are never reached.",
            f"{who} gives {expected} samples, the loader with {self.num_workers} workers gives {self.given}",
            "itertools.islice(stream, info.id, None, info.num_workers)  # every sample to exactly one worker; or "
            "lading.TaggedIterableDataset(source)",
        )

    def _divided_differently(self, expected: int, missing: int, extra: int) -> Finding:
        """Say that workers take their shares of different orders: samples between the shares are lost, others twice."""
        return Finding(
            faults.NEVER_REACHED,
            f"{missing} of {expected} samples of the stream are never reached: each of {self.num_workers} workers "
            "takes its share of another order.",
            f"one reader gives {expected} samples; of {self.given} samples of {self.num_workers} workers {extra} came "
            f"again, and {missing} did not come{self._example()}",
            "mine = ids[info.id :: info.num_workers]; rng.shuffle(mine)  # first divide, then shuffle; or shuffle with "
            "a seed that is the same in every worker, not info.id, info.seed or torch.initial_seed()",
        )

    def _same_order(self) -> Finding | None:
        is_sorted = (self.alone[0] if self.alone else self.first).is_sorted()
        if not self.is_same_again(self.ranks[:1]) or is_sorted or len(self.shares[0]) < _FEW:
            return None
        evidence = f"{self.num_epochs} epochs, each with the same {self.given} samples in the same order"
        if hasattr(self.loader.dataset, "set_epoch"):
            return Finding(
                faults.SAME_ORDER,
                f"the {self.source} has a set_epoch, but gives the same order in every epoch.",
                evidence,
                "dataset.set_epoch(epoch)  # before each epoch; audit(..., set_epoch=True) if your loop does so",
            )
        note = Finding(  # evaluation wants it, training does not
            faults.SAME_ORDER,
            f"the {self.source} gives the same order in every epoch.",
            evidence,
            "order = Permutation(n, key=(seed, epoch))  # shuffle by the epoch; Hugging Face: "
            "stream.shuffle(seed=0), then stream.set_epoch(epoch). Right as it is where it only evaluates",
            level="note",
        )
        return None if self.is_limited else note

    def _same_head(self) -> Finding | None:
        is_short = self.length is not None and self.given < self.length and not self.alone
        is_cut = self.first.was_cut if self.is_limited else is_short
        if not is_cut or not self.is_same_again(self.ranks[:1]):
            return None
        return Finding(
            faults.SAME_HEAD,
            f"every epoch begins with the same {len(self.first.batches)} batches, and stops there.",
            f"{self.num_epochs} epochs of {self.given} samples, always the same ones"
            + (f", of {self.length}" if self.length is not None else ""),
            "lading.TaggedIterableDataset(source, batch_size).starting_at(batch)  # resumes where it stopped",
        )

    def _tail(self) -> Finding | None:
        size = self.loader.batch_size or 0
        short = {b.worker: len(b.samples) for b in self.first.batches if len(b.samples) < size}
        if not self.loader.drop_last or not short:
            return None
        return Finding(
            faults.DROPPED_TAIL,
            f"{sum(short.values())} samples at the end of every epoch are dropped, because they do not fill a batch.",
            "; ".join(f"worker {worker} ends with {left} samples" for worker, left in sorted(short.items()))
            + f", a batch has {size}",
            "DataLoader(..., drop_last=False)",
        )


def _declared_length(dataset: Any) -> int | None:
    """Return what a stream says its length is; a tagged stream counts batches, which is another thing."""
    try:
        return None if isinstance(dataset, TaggedIterableDataset) else len(dataset)
    except TypeError:
        return None
