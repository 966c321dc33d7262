"""Deal the batches of a stream to ranks and workers, so that no two repeat each other's samples.

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


class Hand(NamedTuple):
    """One batch as it is dealt: its number, its samples and their places in the stream; padding comes last."""

    number: int
    positions: list[int]
    items: list[Any]
    num_padding: int = 0


@dataclass(frozen=True)
class Seat:
    """Who is dealt to: a worker of a rank.

    Attributes:
        rank: The rank.
        world_size: Number of ranks.
        worker: The worker of the rank.
        num_workers: Number of workers of each rank.
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
        """Number of seats at the table."""
        return self.world_size * self.num_workers

    @property
    def shard(self) -> int:
        """Number of this seat: the batches it gets are congruent to it."""
        turn = (self.worker + self.first // self.world_size) % self.num_workers
        return self.rank + self.world_size * turn


def deal_whole(stream: Iterable[Any], batch_size: int, seat: Seat, *, drop_last: bool = False) -> Iterator[Hand]:
    """Deal from a stream that this seat reads as a whole."""
    batches = _batches(stream, batch_size)
    round_ = 0
    while table := list(islice(batches, seat.world_size)):
        complete = len(table) == seat.world_size and len(table[-1].items) == batch_size
        if seat.holds(round_) and (complete or not drop_last):
            mine = table[seat.rank] if seat.rank < len(table) else _empty(round_ * seat.world_size + seat.rank)
            if mine.number >= seat.first:
                yield _filled(mine, table[0])
        round_ += 1


def deal_shard(
    shard: Iterable[Any], batch_size: int, seat: Seat, *, length: int | None, drop_last: bool = False
) -> Iterator[Hand]:
    """Deal from a shard: samples ``seat.shard``, ``seat.shard + num_shards``, ... of the stream.

    Args:
        shard: The samples of this seat.
        batch_size: Samples of a batch.
        seat: Who is dealt to.
        length: Samples in the whole stream; needed where ranks must agree on their number of batches.
        drop_last: Drop what is short, instead of filling it up.
    """
    leader = seat.shard - seat.rank  # the seat of rank 0 has the most samples of its round
    latest = None
    for batch in _batches(shard, batch_size):
        number = batch.number * seat.num_shards + seat.shard
        positions = [p * seat.num_shards + seat.shard for p in batch.positions]
        latest = Hand(number, positions, batch.items)
        is_whole = not drop_last or _is_full(batch.number, batch_size, seat, leader, length, latest)
        if is_whole and number >= seat.first:
            yield _filled_to(latest, _rows(batch.number, batch_size, seat, leader, length), latest)
    if latest is not None and not drop_last and length is not None:
        turn = latest.number // seat.num_shards + 1
        rows = _rows(turn, batch_size, seat, leader, length)
        if rows:
            yield _filled_to(_empty(turn * seat.num_shards + seat.shard), rows, latest)


def _batches(stream: Iterable[Any], batch_size: int) -> Iterator[Hand]:
    iterator, number = iter(stream), 0
    while items := list(islice(iterator, batch_size)):
        start = number * batch_size
        yield Hand(number, list(range(start, start + len(items))), items)
        number += 1


def _rows(turn: int, batch_size: int, seat: Seat, shard: int, length: int | None) -> int | None:
    """Return the rows of a shard's batch; None where only one rank plays and nothing has to agree."""
    if length is None or seat.world_size == 1:
        return None
    samples = max(0, -(-(length - shard) // seat.num_shards))
    return min(max(samples - turn * batch_size, 0), batch_size)


def _is_full(turn: int, batch_size: int, seat: Seat, leader: int, length: int | None, mine: Hand) -> bool:
    if len(mine.items) < batch_size:
        return False
    return _rows(turn, batch_size, seat, leader + seat.world_size - 1, length) in (None, batch_size)


def _empty(number: int) -> Hand:
    return Hand(number, [], [])


def _filled(hand: Hand, example: Hand) -> Hand:
    """Return a hand with as many rows as the first of its round."""
    return _filled_to(hand, len(example.items), hand if hand.items else example)


def _filled_to(hand: Hand, rows: int | None, example: Hand) -> Hand:
    missing = 0 if rows is None else rows - len(hand.items)
    if missing <= 0:
        return hand
    copies = [i % len(example.items) for i in range(missing)]
    return Hand(
        hand.number,
        hand.positions + [example.positions[i] for i in copies],
        hand.items + [example.items[i] for i in copies],
        missing,
    )
