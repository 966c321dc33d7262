"""The sizes rule: whether a run is chunked, and in chunks of how many batches.

    train_chunk_size   val_chunk_size   │ chunked   train chunk        val chunk          limit_*
    ────────────────────────────────────┼───────────────────────────────────────────────────────────
         none               none        │   no      –                  –                  work as ever
         2000               none        │   yes     2000               whole partition    ignored
         none               200         │   yes     whole partition    200                ignored
         2000               200         │   yes     2000               200                ignored

One pure function, used by data modules, hand-written loops, Lightning and the
configuration. All sizes count batches. A limit never switches chunking on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lading.errors import ConfigError, PlanError
from lading.loader.chunks import Chunks
from lading.runtime.fields import is_whole


@dataclass(frozen=True)
class ChunkSizes:
    """What the rule says.

    Attributes:
        enabled: Whether both partitions are chunked.
        train: Batches in a training chunk; None without chunking, or as long as the partition is not known.
        val: Batches in a validation (and test) chunk; None likewise.
        limit_train_batches: The limit that holds: the given one without chunking, 1.0 with it.
        limit_val_batches: Likewise.
        ignored: Limits that were given and do not hold, by name.
    """

    enabled: bool
    train: int | None
    val: int | None
    limit_train_batches: float | int | None
    limit_val_batches: float | int | None
    ignored: tuple[tuple[str, float | int], ...] = ()

    @property
    def warning(self) -> str | None:
        """One line that names the ignored numbers, or None."""
        if not self.ignored:
            return None
        numbers = ", ".join(f"{name}={value}" for name, value in self.ignored)
        return (
            f"{numbers} ignored: chunk sizes are given (train {_named(self.train)}, val {_named(self.val)}), and a "
            "chunk is as long as they say. Remove the limits, or the chunk sizes."
        )


def chunk_sizes(
    train_chunk_size: Any = None,
    val_chunk_size: Any = None,
    *,
    train_batches: int | None = None,
    val_batches: int | None = None,
    limit_train_batches: float | int | None = None,
    limit_val_batches: float | int | None = None,
) -> ChunkSizes:
    """Apply the sizes rule; every number counts batches.

    Args:
        train_chunk_size: As the user gave it; of sizes that change (``lading.Chunks``) the first counts here.
        val_chunk_size: As the user gave it.
        train_batches: Batches of the whole training partition, once known.
        val_batches: Batches of the whole validation partition, once known.
        limit_train_batches: Lightning's limit, if the user gave one.
        limit_val_batches: Likewise.

    Example:
        >>> sizes = chunk_sizes(2000, val_batches=55, limit_val_batches=200)
        >>> sizes.enabled, sizes.train, sizes.val, sizes.ignored
        (True, 2000, 55, (('limit_val_batches', 200),))
        >>> chunk_sizes(limit_train_batches=2000).enabled
        False
    """
    checked_size("train_chunk_size", train_chunk_size)
    checked_size("val_chunk_size", val_chunk_size)
    if train_chunk_size is None and val_chunk_size is None:
        return ChunkSizes(False, None, None, limit_train_batches, limit_val_batches)
    limits = (("limit_train_batches", limit_train_batches), ("limit_val_batches", limit_val_batches))
    return ChunkSizes(
        enabled=True,
        train=train_batches if train_chunk_size is None else first_size(train_chunk_size),
        val=val_batches if val_chunk_size is None else first_size(val_chunk_size),
        limit_train_batches=1.0,
        limit_val_batches=1.0,
        ignored=tuple((name, value) for name, value in limits if value is not None and not _is_everything(value)),
    )


def checked_size(name: str, value: Any) -> None:
    """Refuse a chunk size that is no integer from 1 up (None is fine), nor what ``lading.Chunks`` describes."""
    if isinstance(value, Chunks | Mapping) or (isinstance(value, Sequence) and not isinstance(value, str)):
        try:
            Chunks.of(value)
        except PlanError as error:
            raise ConfigError(f"{name}: {error}") from error
    elif value is not None and not is_whole(value, 1):
        raise ConfigError(
            f"{name}={value!r}: expected an integer of batches from 1 up, or nothing. Leave it out to take the "
            "whole partition as one chunk."
        )


def first_size(value: Any) -> int:
    """Return the batches of the first chunk."""
    chunks = Chunks.of(value)
    assert chunks is not None
    return chunks.first


def num_batches(num_samples: int, batch_size: int, *, drop_last: bool = False) -> int:
    """Return the batches of a partition.

    >>> num_batches(10, 4), num_batches(10, 4, drop_last=True)
    (3, 2)
    """
    return num_samples // batch_size if drop_last else -(-num_samples // batch_size)


def _is_everything(limit: float | int) -> bool:
    return isinstance(limit, float) and limit == 1.0


def _named(size: int | None) -> str:
    return "whole partition" if size is None else f"{size} batches"
