"""The clock of a run: which epoch, chunk and positions a step has, and back.

    step        0  1  2  3 │ 4  5  6  7 │ 8 ...
    epoch       ──── 0 ────  ──── 1 ────
    chunk       ─ 0 ─  1     ─ 2 ─  3       (chunks of 3 batches; the last of an epoch is short)

A change of batch or chunk size (planned by ``batch_schedule``, or a ``Rebatch``)
starts a new stretch; earlier steps keep their numbers and their samples.

Positions. Without weights position = epoch * epoch_samples + offset: a dropped
tail has positions that no step holds. In a *gapless* clock (weighted draws that
continue over the epochs) the position of a step is the number of samples in all
steps before it: a dropped tail has no position.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.order.event import Pace, Rebatch, ResumeBase

I64 = NDArray[np.int64]

MAX_POSITION = 1 << 62  # positions and draws are 64-bit integers; a weighted mixture stops at 2**60


class Location(NamedTuple):
    """Where a step is.

    Attributes:
        step: Number of the global batch in the run.
        epoch: Its epoch.
        epoch_step: Its number inside the epoch.
        chunk: Its chunk, where there are chunks.
        chunk_step: Its number inside the chunk.
        position: Position of its first sample in the run's order.
        size: Samples in it.
        offset: Samples of its epoch before it.
    """

    step: int
    epoch: int
    epoch_step: int
    chunk: int | None
    chunk_step: int | None
    position: int
    size: int
    offset: int


@dataclass(frozen=True)
class Batching:
    """How the samples of an epoch are cut into steps.

    Attributes:
        sizes: (first step, samples of a global batch), ascending, the first at step 0.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        chunk_batches: Batches of a chunk, or None.
        chunks: (first chunk, batches of a chunk) of the sizes planned after it, ascending.
    """

    sizes: tuple[tuple[int, int], ...]
    drop_last: bool = False
    chunk_batches: int | None = None
    chunks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Stretch:
    """Steps of one batch and chunk size, from the step of a pace on."""

    pace: Pace
    head_steps: int  # steps left in its first epoch
    head_samples: int  # positions from its first step to the next epoch
    epoch_steps: int  # steps of each later epoch
    epoch_samples: int  # positions from one later epoch to the next
    is_planned: bool = False  # by the plan itself, not by an event

    def chunks_before(self, epoch: int) -> int:
        """Return the number of the first chunk of an epoch after the stretch's first."""
        assert self.pace.chunk_batches is not None
        head, later = -(-self.head_steps // self.pace.chunk_batches), -(-self.epoch_steps // self.pace.chunk_batches)
        return self.pace.chunk + head + (epoch - self.pace.epoch - 1) * later


class Clock:
    """Steps, epochs, chunks and positions of a run.

    Args:
        batching: Batch sizes as planned, chunks, and what happens to tails.
        rebatches: Changes of size since, in order.
        gapless: Whether positions count the samples of all steps before, dropped tails left out.
        limit: Position that no step may pass.
        base: What is known of a run whose past is not.
    """

    def __init__(
        self,
        epoch_samples: int,
        batching: Batching,
        rebatches: Sequence[Rebatch] = (),
        *,
        gapless: bool = False,
        limit: int = MAX_POSITION,
        base: ResumeBase | None = None,
    ) -> None:
        self.epoch_samples, self.drop_last, self.gapless, self.limit = epoch_samples, batching.drop_last, gapless, limit
        self.first_step = 0
        self._stretches: list[_Stretch] = []
        if base is not None and base.pace is not None:
            pace, later, self._later_chunks = base.pace, base.pace.later, list(base.pace.later_chunks)
        else:
            pace = Pace(0, 0, 0, 0, 0, batching.sizes[0][1], batching.chunk_batches, 0)
            later, self._later_chunks = batching.sizes[1:], list(batching.chunks)
        self._append(pace)
        for event in rebatches:
            self._plan_sizes(later, event.step)
            place = event.epoch, event.offset
            self._append(self._pace(event.step, event.global_batch_size, event.chunk_batches, place))
            later = event.later
        self._plan_sizes(later, None)
        if base is not None:
            self.first_step = base.first_step

    @property
    def batch(self) -> int:
        """Samples of a global batch, after the last change."""
        return self._stretches[-1].pace.batch

    @property
    def largest_batch(self) -> int:
        """Samples of the largest global batch that the clock knows of."""
        return max([stretch.pace.batch for stretch in self._stretches])

    @property
    def chunk_batches(self) -> int | None:
        """Batches of a chunk, after the last change."""
        return self._stretches[-1].pace.chunk_batches

    @property
    def has_short_steps(self) -> bool:
        """Whether an epoch may end with a step of fewer samples than a batch."""
        rests = ((self.epoch_samples - o) % s.pace.batch for s in self._stretches for o in (0, s.pace.offset))
        return not self.drop_last and any(rests)

    def pace_at(self, step: int) -> Pace:
        """Return the sizes in force at a step, since when, and which are planned after it."""
        number = self._number(step)
        after = [(a.pace, b.pace) for a, b in itertools.pairwise(self._stretches[number:]) if b.is_planned]
        later = tuple((b.step, b.batch) for a, b in after if a.batch != b.batch)
        chunks = tuple((b.chunk, b.chunk_batches or 0) for a, b in after if a.chunk_batches != b.chunk_batches)
        pace = self._stretches[number].pace
        before = 0 if pace.chunk_batches is None else pace.chunk - self.first_chunk(pace.epoch)
        return replace(pace, later=later, later_chunks=chunks, pass_chunks=before)

    def first_chunk(self, epoch: int) -> int:
        """Return the number of the first chunk of an epoch, also where its first steps are not known any more."""
        pace = self._stretches[0].pace
        if pace.epoch == epoch:
            return pace.chunk - pace.pass_chunks
        stretch = self._at_step(self.epoch_start(epoch))
        return stretch.pace.chunk if stretch.pace.epoch == epoch else stretch.chunks_before(epoch)

    def batch_at(self, step: int) -> int:
        """Return the size of a complete global batch at a step."""
        return self._at_step(step).pace.batch

    def locate(self, step: int) -> Location:
        """Return where a step is."""
        if step < self.first_step:
            raise PlanError(f"step {step} is negative: steps count from 0.") if step < 0 else self._past(f"step {step}")
        stretch = self._stretches[0] if len(self._stretches) == 1 else self._at_step(step)
        pace = stretch.pace
        local = step - pace.step
        if local < stretch.head_steps:
            epoch, inside = pace.epoch, local
            run = inside * pace.batch
            epoch_step, offset, position = pace.epoch_step + inside, pace.offset + run, pace.position + run
        else:
            epochs, inside = divmod(local - stretch.head_steps, stretch.epoch_steps)
            epoch, epoch_step, offset = pace.epoch + 1 + epochs, inside, inside * pace.batch
            position = pace.position + stretch.head_samples + epochs * stretch.epoch_samples + offset
        chunk = chunk_step = None
        if pace.chunk_batches is not None:
            number, chunk_step = divmod(inside, pace.chunk_batches)
            chunk = number + (pace.chunk if epoch == pace.epoch else stretch.chunks_before(epoch))
        rest = self.epoch_samples - offset
        size = pace.batch if pace.batch < rest else rest
        if position + size > self.limit:
            raise PlanError(
                f"step {step} lies beyond position 2**{self.limit.bit_length() - 1}: expected an earlier step. "
                "Check the number of the step."
            )
        # What Location(...) does, in half the time: every bill begins here.
        return tuple.__new__(Location, (step, epoch, epoch_step, chunk, chunk_step, position, size, offset))

    def epoch_start(self, epoch: int) -> int:
        """Return the first step of an epoch."""
        if epoch < 0:
            raise PlanError(f"epoch {epoch} is negative: epochs count from 0.")
        stretch = next((s for s in reversed(self._stretches) if s.pace.epoch <= epoch), None)
        if stretch is None:
            raise self._past(f"epoch {epoch}")
        if stretch.pace.epoch == epoch:
            return stretch.pace.step - stretch.pace.epoch_step
        return stretch.pace.step + stretch.head_steps + (epoch - stretch.pace.epoch - 1) * stretch.epoch_steps

    def epoch_steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return self.epoch_start(epoch + 1) - self.epoch_start(epoch)

    def chunk_start(self, chunk: int) -> int:
        """Return the first step of a chunk."""
        if self.chunk_batches is None:
            raise PlanError("this plan has no chunks. Pass chunk_batches= when making it.")
        if chunk < 0:
            raise PlanError(f"chunk {chunk} is negative: chunks count from 0.")
        chunked = (s for s in reversed(self._stretches) if s.pace.chunk_batches is not None and s.pace.chunk <= chunk)
        stretch = next(chunked, self._stretches[0])
        batches = stretch.pace.chunk_batches
        assert batches is not None
        head = -(-stretch.head_steps // batches)
        number = chunk - stretch.pace.chunk
        if number < head:
            return stretch.pace.step + number * batches
        epochs, number = divmod(number - head, -(-stretch.epoch_steps // batches))
        return self.epoch_start(stretch.pace.epoch + 1 + epochs) + number * batches

    def chunk_steps(self, chunk: int) -> int:
        """Return the number of steps of a chunk."""
        return self.chunk_start(chunk + 1) - self.chunk_start(chunk)

    def step_from(self, position: int) -> int:
        """Return the first step whose first sample is at or after a position."""
        number = max(bisect.bisect_right(self._positions, position) - 1, 0)
        stretch = self._stretches[number]
        pace, inside = stretch.pace, max(position - stretch.pace.position, 0)
        step = pace.step + min(-(-inside // pace.batch), stretch.head_steps)
        if inside > stretch.head_samples:
            epochs, inside = divmod(inside - stretch.head_samples, stretch.epoch_samples)
            step += epochs * stretch.epoch_steps + min(-(-inside // pace.batch), stretch.epoch_steps)
        if number + 1 < len(self._stretches):
            return min(step, self._stretches[number + 1].pace.step)
        return step

    def steps_of(self, positions: I64) -> tuple[I64, I64]:
        """Return the step and slot of positions; step -1 where the position is dropped."""
        table = self._table[np.searchsorted(self._positions, positions, side="right") - 1].T
        first_step, start, batch, head_steps, head_samples, epoch_steps, epoch_samples, _ = table
        inside = positions - start
        is_head = inside < head_samples
        epochs, later = np.divmod(inside - head_samples, epoch_samples)
        number, slot = np.divmod(np.where(is_head, inside, later), batch)
        step = first_step + number + np.where(is_head, 0, head_steps + epochs * epoch_steps)
        kept = number < np.where(is_head, head_steps, epoch_steps)
        return np.where(kept, step, -1), slot

    def spans(self, steps: I64) -> tuple[I64, I64]:
        """Return the first position and the size of each of some steps."""
        if not len(steps):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        least, most = int(steps.min()), int(steps.max())
        self.locate(least), self.locate(most)  # refuses steps that have no place
        first, last = np.searchsorted(self._table[:, 0], (least, most), side="right") - 1
        if first == last:  # as a rule: one row for all of them, instead of a row a step
            table = self._table[first]
        else:
            table = self._table[np.searchsorted(self._table[:, 0], steps, side="right") - 1].T
        first_step, start, batch, head_steps, head_samples, epoch_steps, epoch_samples, offset = table
        local = steps - first_step
        is_head = local < head_steps
        epochs, inside = np.divmod(local - head_steps, epoch_steps)
        inside = np.where(is_head, local, inside) * batch
        offsets = inside + np.where(is_head, offset, 0)
        positions = start + inside + np.where(is_head, 0, head_samples + epochs * epoch_samples)
        return positions, np.minimum(batch, self.epoch_samples - offsets)

    @functools.cached_property
    def _positions(self) -> list[int]:
        return [stretch.pace.position for stretch in self._stretches]

    @functools.cached_property
    def _table(self) -> I64:
        """The stretches as rows of numbers."""
        rows = []
        for s in self._stretches:
            sizes = s.head_steps, s.head_samples, s.epoch_steps, s.epoch_samples
            rows.append((s.pace.step, s.pace.position, s.pace.batch, *sizes, s.pace.offset))
        return np.array(rows, dtype=np.int64)

    def _number(self, step: int) -> int:
        return next(k for k in range(len(self._stretches) - 1, -1, -1) if self._stretches[k].pace.step <= step)

    def _at_step(self, step: int) -> _Stretch:
        if len(self._stretches) == 1:
            return self._stretches[0]
        return self._stretches[self._number(step)]

    def _plan_sizes(self, sizes: Sequence[tuple[int, int]], before: int | None) -> None:
        """Add the planned changes of batch and chunk size that come before a step."""
        waiting = [pair for pair in sizes if before is None or pair[0] < before]
        while True:
            next_chunks = self.chunk_start(self._later_chunks[0][0]) if self._later_chunks else None
            if next_chunks is not None and before is not None and next_chunks >= before:
                next_chunks = None
            steps = [step for step in (waiting[0][0] if waiting else None, next_chunks) if step is not None]
            if not steps:
                return
            step = min(steps)
            batches = self._later_chunks.pop(0)[1] if step == next_chunks else self.chunk_batches
            batch = waiting.pop(0)[1] if waiting and waiting[0][0] == step else self.batch
            self._append(self._pace(step, batch, batches), is_planned=True)

    def _pace(self, step: int, batch: int, chunk_batches: int | None, place: tuple[int, int] | None = None) -> Pace:
        """Return the pace of a stretch that begins at a step; ``place``: its epoch and offset, where they are given."""
        at = self.locate(step)
        first = self._stretches[0].pace
        previous = self.locate(step - 1).chunk if step > first.step else first.chunk - 1
        chunk = 0 if previous is None else previous + 1
        epoch, offset = place or (at.epoch, at.offset)
        position = at.position if self.gapless else epoch * self.epoch_samples + offset
        # An epoch that begins with the step may do so because a size that was planned for it did not fit the last one.
        epoch_step = step - self.epoch_start(epoch) if offset else 0
        return Pace(step, epoch, epoch_step, offset, position, batch, chunk_batches, chunk)

    def _append(self, pace: Pace, *, is_planned: bool = False) -> None:
        left = self.epoch_samples - pace.offset
        head, whole = self._steps(left, pace.batch), self._steps(self.epoch_samples, pace.batch)
        if whole < 1:
            raise PlanError(
                f"an epoch of {self.epoch_samples} samples has no complete global batch of {pace.batch}, and drop_last "
                "drops incomplete ones: nothing would ever be delivered. Lower the batch size or pass drop_last=False."
            )
        drops = self.gapless and self.drop_last
        head_samples = head * pace.batch if drops else left
        epoch_samples = whole * pace.batch if drops else self.epoch_samples
        self._stretches.append(_Stretch(pace, head, head_samples, whole, epoch_samples, is_planned))

    def _steps(self, samples: int, batch: int) -> int:
        return samples // batch if self.drop_last else -(-samples // batch)

    def _past(self, place: str) -> PlanError:
        return PlanError(
            f"{place} lies before step {self.first_step}, from which this plan knows the run: a state keeps what "
            "resuming needs, the ledger has the rest. Open the run with lading.open_run."
        )
