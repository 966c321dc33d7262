"""Watch a stream: hash every sample where it is made, and bring only the hashes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import get_worker_info

from lading.errors import SourceError
from lading.identity.hashing import text64
from lading.loader.foreign import is_iterable, opened_copy
from lading.source.content import content_hash
from lading.source.torch_stream import TaggedIterableDataset


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
            return bool(sample.get("is_padding", False))
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
        alone: Read with one worker that lives through all passes, so that random numbers go on from pass to pass.
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
        sample = sample.get("idx")
    elif isinstance(sample, tuple | list) and sample:
        sample = sample[-1]
    if isinstance(sample, int | np.integer) and not isinstance(sample, bool):
        return int(sample)
    return int(sample) if hasattr(sample, "numel") and sample.numel() == 1 and "int" in str(sample.dtype) else None
