"""Share the batches of a stream among ranks and workers, so that no two repeat each other's samples.

    batch    0   1 | 2   3 | 4   5 | 6  (7)      of 2 ranks with 2 workers each
    rank     0   1 | 0   1 | 0   1 | 0   1
    worker   0   0 | 1   1 | 0   0 | 1   1
             round   round   round   the last round is short: batch 7 is padding, or both are dropped

Batch b holds samples bB to bB+B-1 of the whole stream, whoever reads it: ids
do not depend on the number of workers. Rounds are what ranks do together, so
in every round each rank gets a batch of the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple


class StreamBatch(NamedTuple):
    """One batch of a reader: its number, its samples and their places in the stream; padding comes last."""

    number: int
    positions: list[int]
    items: list[Any]
    num_padding: int = 0


@dataclass(frozen=True)
class ReaderSlot:
    """Who reads: a worker of a rank.

    Attributes:
        first: Batch to begin with, after a resume. Worker 0 gets it, because loaders ask worker 0 first.
    """

    rank: int = 0
    world_size: int = 1
    worker: int = 0
    num_workers: int = 1
    first: int = 0

    def holds(self, round_: int) -> bool:
        """Say whether this worker serves a round of its rank."""
        return (round_ - self.first // self.world_size) % self.num_workers == self.worker

    @property
    def num_shards(self) -> int:
        return self.world_size * self.num_workers

    @property
    def shard(self) -> int:
        """Number of this slot: the batches it gets are congruent to it."""
        turn = (self.worker + self.first // self.world_size) % self.num_workers
        return self.rank + self.world_size * turn


def share_whole(
    stream: Iterable[Any], batch_size: int, slot: ReaderSlot, *, drop_last: bool = False
) -> Iterator[StreamBatch]:
    """Yield a slot's batches of a stream that it reads as a whole."""
    batches = _batches(stream, batch_size)
    round_ = 0
    while round_batches := list(islice(batches, slot.world_size)):
        complete = len(round_batches) == slot.world_size and len(round_batches[-1].items) == batch_size
        if slot.holds(round_) and (complete or not drop_last):
            mine = (
                round_batches[slot.rank]
                if slot.rank < len(round_batches)
                else _empty(round_ * slot.world_size + slot.rank)
            )
            if mine.number >= slot.first:
                yield _filled(mine, round_batches[0])
        round_ += 1


def share_shard(
    shard: Iterable[Any], batch_size: int, slot: ReaderSlot, *, length: int | None, drop_last: bool = False
) -> Iterator[StreamBatch]:
    """Yield a slot's batches of its shard: samples ``slot.shard``, ``slot.shard + num_shards``, ... of the stream.

    The length of the whole stream is needed where ranks must agree on their number of batches.
    """
    leader = slot.shard - slot.rank  # the slot of rank 0 has the most samples of its round
    latest = None
    for batch in _batches(shard, batch_size):
        number = batch.number * slot.num_shards + slot.shard
        positions = [p * slot.num_shards + slot.shard for p in batch.positions]
        latest = StreamBatch(number, positions, batch.items)
        is_whole = not drop_last or _is_full(batch.number, batch_size, slot, leader, length, latest)
        if is_whole and number >= slot.first:
            yield _filled_to(latest, _rows(batch.number, batch_size, slot, leader, length), latest)
    if latest is not None and not drop_last and length is not None:
        turn = latest.number // slot.num_shards + 1
        rows = _rows(turn, batch_size, slot, leader, length)
        if rows:
            yield _filled_to(_empty(turn * slot.num_shards + slot.shard), rows, latest)


def _batches(stream: Iterable[Any], batch_size: int) -> Iterator[StreamBatch]:
    iterator, number = iter(stream), 0
    while items := list(islice(iterator, batch_size)):
        start = number * batch_size
        yield StreamBatch(number, list(range(start, start + len(items))), items)
        number += 1


def _rows(turn: int, batch_size: int, slot: ReaderSlot, shard: int, length: int | None) -> int | None:
    """Return the rows of a shard's batch; None where there is one rank and nothing has to agree."""
    if length is None or slot.world_size == 1:
        return None
    samples = max(0, -(-(length - shard) // slot.num_shards))
    return min(max(samples - turn * batch_size, 0), batch_size)


def _is_full(turn: int, batch_size: int, slot: ReaderSlot, leader: int, length: int | None, mine: StreamBatch) -> bool:
    if len(mine.items) < batch_size:
        return False
    return _rows(turn, batch_size, slot, leader + slot.world_size - 1, length) in (None, batch_size)


def _empty(number: int) -> StreamBatch:
    return StreamBatch(number, [], [])


def _filled(batch: StreamBatch, example: StreamBatch) -> StreamBatch:
    """Return a batch with as many rows as the first of its round."""
    return _filled_to(batch, len(example.items), batch if batch.items else example)


def _filled_to(batch: StreamBatch, rows: int | None, example: StreamBatch) -> StreamBatch:
    missing = 0 if rows is None else rows - len(batch.items)
    if missing <= 0:
        return batch
    copies = [i % len(example.items) for i in range(missing)]
    return StreamBatch(
        batch.number,
        batch.positions + [example.positions[i] for i in copies],
        batch.items + [example.items[i] for i in copies],
        missing,
    )
