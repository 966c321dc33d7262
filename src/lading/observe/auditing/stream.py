"""Judge a stream by the content of its samples.

A stream's samples have no index, so they are known by a hash of what they
hold. What several workers give together is compared with what one reader
gives alone:

    one reader     a b c d e f
    two workers    a b c d e f | a b c d e f      everything twice: the stream is not sharded
    two workers    a c e       | b d              f is never reached

Watch a stream: hash every sample where it is made, and bring only the hashes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from torch.utils.data import get_worker_info

from lading.errors import SourceError
from lading.identity.content import content_hash
from lading.identity.hashing import text64
from lading.identity.sample import IDX, IS_PADDING
from lading.observe.auditing.finding import (
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
from lading.observe.dataloader import is_iterable, opened_copy
from lading.runtime.numbers import whole
from lading.source.stream.torch import TaggedIterableDataset


@dataclass(frozen=True)
class Hashed:
    """A batch as its worker saw it: a hash of each sample, and of each of its parts."""

    worker: int
    samples: list[int]
    parts: list[dict[str, tuple[str, bool]]]
    numbers: list[int | None]


@dataclass
class StreamPass:
    """One pass over a stream.

    Attributes:
        order: The samples, as they came.
        by_worker: The samples of each worker, in its order.
        short_batches: Samples in the last, short batch of each worker.
        num_batches: Batches that came.
        was_cut: Whether there were more.
    """

    order: list[int] = field(default_factory=list)
    by_worker: dict[int, list[int]] = field(default_factory=dict)
    short_batches: dict[int, int] = field(default_factory=dict)
    num_batches: int = 0
    was_cut: bool = False
    _parts: dict[int, list[dict[str, tuple[str, bool]]]] = field(default_factory=dict)
    _numbers: list[int | None] = field(default_factory=list)

    def add(self, batch: Hashed, batch_size: int | None) -> None:
        """Add one batch."""
        self.num_batches += 1
        self.order += batch.samples
        self.by_worker.setdefault(batch.worker, []).extend(batch.samples)
        self._parts.setdefault(batch.worker, []).extend(batch.parts)
        self._numbers += batch.numbers
        if batch_size is not None and len(batch.samples) < batch_size:
            self.short_batches[batch.worker] = len(batch.samples)

    def parts(self) -> list[str]:
        """Return the parts a sample has."""
        return sorted({part for rows in self._parts.values() for row in rows[:1] for part in row})

    def column(self, worker: int, part: str) -> list[str]:
        """Return the hashes of one part of a worker's samples."""
        return [row[part][0] for row in self._parts.get(worker, []) if part in row]

    def is_float(self, part: str) -> bool:
        """Say whether a part holds real numbers."""
        return any(row[part][1] for rows in self._parts.values() for row in rows[:1] if part in row)

    def is_sorted(self) -> bool:
        """Say whether the samples are numbers that rise, as a stream in order gives them."""
        numbers = [n for n in self._numbers if n is not None]
        return len(numbers) == len(self.order) > 0 and numbers == sorted(numbers)


class HashingCollate:
    """Takes the place of the collate function: hashes instead of data."""

    def __init__(self, *, makes_batches: bool, is_tagged: bool, holds_batches: bool) -> None:
        self.makes_batches, self.is_tagged, self.holds_batches = makes_batches, is_tagged, holds_batches

    def __call__(self, data: Any) -> Hashed:
        info = get_worker_info()
        samples = list(data) if self.makes_batches else self._rows(data)
        real = [s for s in samples if not self._is_padding(s)]
        hashes = [_hash(s) for s in real]
        return Hashed(info.id if info else 0, hashes, [_parts(s) for s in real], [_number(s) for s in real])

    def _rows(self, item: Any) -> list[Any]:
        # A tagged stream that makes its own batches gives (data, sample ids, batch id): the ids are the samples.
        return [(None, i) for i in item[1]] if self.is_tagged and self.holds_batches else [item]

    def _is_padding(self, sample: Any) -> bool:
        if isinstance(sample, Mapping):
            return bool(sample.get(IS_PADDING, False))
        return self.is_tagged and isinstance(sample, tuple) and sample[-1] in (-1, "")


def hashing_copy(dataloader: Any, num_workers: int, *, persistent: bool = False) -> Any:
    """Return a copy of a stream's loader that gives hashes, short batches included."""
    dataset = dataloader.dataset
    watching, parts = opened_copy(dataloader)
    tagged = isinstance(dataset, TaggedIterableDataset)
    parts["collate_fn"] = HashingCollate(
        makes_batches=dataloader.batch_sampler is not None,
        is_tagged=tagged,
        holds_batches=tagged and dataset.batch_size is not None,
    )
    parts.update(drop_last=False, num_workers=num_workers, pin_memory=False)
    parts.update(persistent_workers=persistent, prefetch_factor=2 if num_workers else None)
    return watching


def watch_stream(
    dataloader: Any, epochs: int, limit: int, begin: Callable[[int], None], *, alone: bool = False
) -> list[StreamPass]:
    """Watch passes over a stream, with the loader's own workers or with one reader.

    Args:
        dataloader: The loader.
        epochs: Passes to watch.
        limit: Batches to watch in each, at most.
        begin: Called before each pass.
        alone: Read with one worker that lives through all passes, so that random numbers continue from pass to pass.
    """
    workers = 1 if alone else dataloader.num_workers
    persistent = alone or (dataloader.persistent_workers and workers > 0)
    watching = hashing_copy(dataloader, workers, persistent=persistent)
    passes = []
    for epoch in range(epochs):
        begin(epoch)
        seen, batches = StreamPass(), iter(watching)
        for batch in islice(batches, limit):
            seen.add(batch, dataloader.batch_size)
        seen.was_cut = seen.num_batches == limit and next(batches, None) is not None
        passes.append(seen)
    return passes


def declared_length(dataloader: Any) -> int | None:
    """Return what an iterable dataset says its length is; a tagged stream counts batches, which is another thing."""
    if not is_iterable(dataloader) or isinstance(dataloader.dataset, TaggedIterableDataset):
        return None
    try:
        return len(dataloader.dataset)
    except TypeError:
        return None


def _hash(sample: Any) -> int:
    try:
        return int(content_hash(sample), 16)
    except SourceError:
        return text64(repr(sample))  # no stable content; good enough for samples of the same process tree


def _parts(sample: Any) -> dict[str, tuple[str, bool]]:
    if isinstance(sample, Mapping):
        return {str(key): _part(value) for key, value in sample.items()}
    if isinstance(sample, tuple | list):
        return {f"part {place}": _part(value) for place, value in enumerate(sample)}
    return {"": _part(sample)}


def _part(value: Any) -> tuple[str, bool]:
    dtype = str(getattr(value, "dtype", ""))
    return f"{_hash(value):016x}", isinstance(value, float) or "float" in dtype


def _number(sample: Any) -> int | None:
    """Return the number that names a sample, or that it is."""
    if isinstance(sample, Mapping):
        sample = sample.get(IDX)
    elif isinstance(sample, tuple | list) and sample:
        sample = sample[-1]
    return whole(sample)


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
        has_set_epoch: Whether the dataset has a ``set_epoch``.
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
        if not self._all_alike():
            return self._overlapping_workers(extra)
        return Finding(
            REPEATED,
            f"{self.facts.num_workers} workers read the same samples: the stream is not divided among them.",
            f"one reader gives {len(self.alone[0].order)} samples, {self.facts.num_workers} workers give "
            f"{len(self.first.order)}{self._example()}",
            "itertools.islice(stream, info.id, None, info.num_workers)  # with info = get_worker_info(); or "
            "lading.TaggedIterableDataset(source)",
        )

    def _overlapping_workers(self, extra: int) -> Finding:
        """Return that the stream is divided, but its shards overlap."""
        sizes = ", ".join(f"worker {w} gives {len(s)}" for w, s in sorted(self.first.by_worker.items())[:4])
        return Finding(
            REPEATED,
            f"the shards of {self.facts.num_workers} workers overlap: {extra} samples come more often than once.",
            f"one reader gives {len(self.alone[0].order)} samples, {sizes}{self._example()}",
            "shards = files[info.id :: info.num_workers]  # or start, stop = n * id // w, n * (id + 1) // w: where one "
            "ends the next begins; or lading.TaggedIterableDataset(source)",
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
        if any(set(order) != set(orders[0]) for order in orders[1:]):
            return Finding(
                REPEATED,
                f"the shards of {len(self.ranks)} ranks overlap: {extra} samples are on several ranks.",
                "; ".join(f"rank {rank} gives {len(order)} samples" for rank, order in enumerate(orders[:4])),
                "shards = files[rank::world_size]  # or start, stop = n * rank // w, n * (rank + 1) // w: where one "
                "ends the next begins; or lading.TaggedIterableDataset(source)",
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
        is_sorted = (self.alone[0] if self.alone else self.first).is_sorted()
        if not self._is_same_again() or is_sorted or len(set(self.first.order)) < _FEW:
            return None
        if not self.facts.has_set_epoch:
            return self._always_the_same()
        return Finding(
            SAME_ORDER,
            f"the {self.facts.source} has a set_epoch, but gives the same order in every epoch.",
            f"{len(self.ranks[0])} epochs, each with the same {len(self.first.order)} samples in the same order",
            "dataset.set_epoch(epoch)  # before each epoch; audit(..., set_epoch=True) if your loop does so",
        )

    def _always_the_same(self) -> Finding | None:
        """Mention a stream that comes in one order, which evaluation wants and training does not."""
        if self.facts.is_limited:
            return None
        return Finding(
            SAME_ORDER,
            f"the {self.facts.source} gives the same order in every epoch.",
            f"{len(self.ranks[0])} epochs, each with the same {len(self.first.order)} samples in the same order",
            "order = Permutation(n, key=(seed, epoch))  # shuffle by the epoch; Hugging Face: "
            "stream.shuffle(seed=0), then stream.set_epoch(epoch). Right as it is where it only evaluates",
            level="note",
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
            "lading.TaggedIterableDataset(source, batch_size).starting_at(batch)  # resumes where it stopped",
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
