"""The clock of a run: which epoch, chunk and positions a step has, and back.

    step        0  1  2  3 │ 4  5  6  7 │ 8 ...
    epoch       ──── 0 ────  ──── 1 ────
    chunk       ─ 0 ─  1     ─ 2 ─  3       (chunks of 3 batches; the last of an epoch is short)

A change of batch or chunk size (``Rebatch``) starts a new segment; earlier
steps keep their numbers and their samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.order.event import Rebatch

I64 = NDArray[np.int64]


class Location(NamedTuple):
    """Where a step stands.

    Attributes:
        step: Number of the global batch in the run.
        epoch: Its epoch.
        epoch_step: Its number inside the epoch.
        chunk: Its chunk, where there are chunks.
        chunk_step: Its number inside the chunk.
        position: Absolute position of its first sample.
        size: Samples in it.
    """

    step: int
    epoch: int
    epoch_step: int
    chunk: int | None
    chunk_step: int | None
    position: int
    size: int


@dataclass(frozen=True)
class _Segment:
    """Steps of one batch and chunk size, from ``first_step`` at (``epoch``, ``offset``) on."""

    first_step: int
    epoch: int
    offset: int
    batch: int
    chunk_batches: int | None
    first_chunk: int
    head_steps: int  # steps left in its first epoch
    epoch_steps: int  # steps of each later epoch

    def chunks_before(self, epoch: int) -> int:
        """Return the number of the first chunk of an epoch after the segment's first."""
        assert self.chunk_batches is not None
        head, later = -(-self.head_steps // self.chunk_batches), -(-self.epoch_steps // self.chunk_batches)
        return self.first_chunk + head + (epoch - self.epoch - 1) * later


class Clock:
    """Steps, epochs, chunks and positions of a run.

    Args:
        epoch_samples: Samples of an epoch.
        batch: Samples of a global batch.
        drop_last: Whether an incomplete global batch at the end of an epoch is dropped.
        chunk_batches: Batches of a chunk, or None.
        rebatches: Changes of size, in order.
    """

    def __init__(
        self, epoch_samples: int, batch: int, drop_last: bool, chunk_batches: int | None, rebatches: Sequence[Rebatch]
    ) -> None:
        self.epoch_samples, self.drop_last = epoch_samples, drop_last
        self._segments = [self._segment(0, 0, 0, batch, chunk_batches, 0)]
        for event in rebatches:
            previous = self.locate(event.step - 1).chunk if event.step else None
            first_chunk = 0 if previous is None else previous + 1
            self._segments.append(
                self._segment(
                    event.step, event.epoch, event.offset, event.global_batch_size, event.chunk_batches, first_chunk
                )
            )

    @property
    def batch(self) -> int:
        """Samples of a global batch, after the last change."""
        return self._segments[-1].batch

    @property
    def chunk_batches(self) -> int | None:
        """Batches of a chunk, after the last change."""
        return self._segments[-1].chunk_batches

    def batch_at(self, step: int) -> int:
        """Return the size of a complete global batch at a step."""
        return self._at_step(step).batch

    def locate(self, step: int) -> Location:
        """Return where a step stands."""
        if step < 0:
            raise PlanError(f"step {step} is negative: steps count from 0.")
        segment = self._at_step(step)
        local = step - segment.first_step
        if local < segment.head_steps:
            epoch, inside, start = segment.epoch, local, segment.offset
            epoch_step = step - self.epoch_start(epoch)
        else:
            epochs, inside = divmod(local - segment.head_steps, segment.epoch_steps)
            epoch, start, epoch_step = segment.epoch + 1 + epochs, 0, inside
        offset = start + inside * segment.batch
        chunk = chunk_step = None
        if segment.chunk_batches is not None:
            number, chunk_step = divmod(inside, segment.chunk_batches)
            first = segment.first_chunk if epoch == segment.epoch else segment.chunks_before(epoch)
            chunk = first + number
        size = min(segment.batch, self.epoch_samples - offset)
        return Location(step, epoch, epoch_step, chunk, chunk_step, epoch * self.epoch_samples + offset, size)

    def epoch_start(self, epoch: int) -> int:
        """Return the first step of an epoch."""
        if epoch < 0:
            raise PlanError(f"epoch {epoch} is negative: epochs count from 0.")
        segment = next(s for s in reversed(self._segments) if s.epoch < epoch or (s.epoch == epoch and s.offset == 0))
        if segment.epoch == epoch:
            return segment.first_step
        return segment.first_step + segment.head_steps + (epoch - segment.epoch - 1) * segment.epoch_steps

    def epoch_steps(self, epoch: int) -> int:
        """Return the number of steps of an epoch."""
        return self.epoch_start(epoch + 1) - self.epoch_start(epoch)

    def chunk_start(self, chunk: int) -> int:
        """Return the first step of a chunk."""
        if self.chunk_batches is None:
            raise PlanError("this plan has no chunks. Pass chunk_batches= when making it.")
        if chunk < 0:
            raise PlanError(f"chunk {chunk} is negative: chunks count from 0.")
        segment = next(s for s in reversed(self._segments) if s.chunk_batches is not None and s.first_chunk <= chunk)
        assert segment.chunk_batches is not None
        head = -(-segment.head_steps // segment.chunk_batches)
        number = chunk - segment.first_chunk
        if number < head:
            return segment.first_step + number * segment.chunk_batches
        epochs, number = divmod(number - head, -(-segment.epoch_steps // segment.chunk_batches))
        return self.epoch_start(segment.epoch + 1 + epochs) + number * segment.chunk_batches

    def chunk_steps(self, chunk: int) -> int:
        """Return the number of steps of a chunk."""
        return self.chunk_start(chunk + 1) - self.chunk_start(chunk)

    def steps_of(self, positions: I64) -> tuple[I64, I64]:
        """Return the step and slot of absolute positions; step -1 where the position is dropped."""
        epochs, offsets = np.divmod(positions, self.epoch_samples)
        steps, slots = np.full(len(positions), -1, dtype=np.int64), np.zeros(len(positions), dtype=np.int64)
        for segment in self._segments:
            first = epochs == segment.epoch
            inside = (first & (offsets >= segment.offset)) | (epochs > segment.epoch)
            number, slot = np.divmod(offsets - np.where(first, segment.offset, 0), segment.batch)
            before = np.where(first, 0, segment.head_steps + (epochs - segment.epoch - 1) * segment.epoch_steps)
            kept = number < np.where(first, segment.head_steps, segment.epoch_steps)
            steps = np.where(inside, np.where(kept, segment.first_step + before + number, -1), steps)
            slots = np.where(inside, slot, slots)
        return steps, slots

    def _at_step(self, step: int) -> _Segment:
        if len(self._segments) == 1:
            return self._segments[0]
        return next(s for s in reversed(self._segments) if s.first_step <= step)

    def _segment(
        self, step: int, epoch: int, offset: int, batch: int, chunk_batches: int | None, first_chunk: int
    ) -> _Segment:
        head, whole = (self._steps(self.epoch_samples - o, batch) for o in (offset, 0))
        if whole < 1:
            raise PlanError(
                f"an epoch of {self.epoch_samples} samples has no complete global batch of {batch}, and drop_last "
                "drops incomplete ones: nothing would ever be delivered. Lower the batch size or pass drop_last=False."
            )
        return _Segment(step, epoch, offset, batch, chunk_batches, first_chunk, head, whole)

    def _steps(self, samples: int, batch: int) -> int:
        return samples // batch if self.drop_last else -(-samples // batch)
