"""The books of a Trainer that reads a stream: what came is recorded, what will come is not known.

    stream    ──▶ (number, sample) ──▶ batch ──▶ bill     the number is the place in the stream
    resume    Trainer reads the stream again from its start and leaves out what it had

Numbers are unique in a pass over the stream: without workers they are 0, 1, 2, ...;
each worker counts for itself (``lading.observe.names.stream_index``), because
nobody knows how workers share a stream, or whether they do. Rows that
Accelerate repeats to fill the last step of a pass are padding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ConfigError, ResumeError
from lading.identity import Bill, World
from lading.ledger.ledger import Ledger
from lading.loader.note import Trackers
from lading.loader.state import loaded_mark, marked
from lading.observe.heads import Heads
from lading.observe.names import NAME, RowNames, stream_place
from lading.observe.track_state import TrackedState
from lading.observe.tracking import observed_bill
from lading.source.counting import RowCounter
from lading.train.transformers.books import UpdateBooks
from lading.train.transformers.numbered import NumberedStream


class StreamBooks(UpdateBooks):
    """Ledger and position of a trainer's run over a stream; ``batch_size`` is that of each process."""

    def __init__(
        self,
        stream: Any,
        run: Ledger | str | os.PathLike[str],
        batch_size: int,
        world: World,
        base: Sequence[str] = (),
    ) -> None:
        super().__init__(run, (NAME,), base)
        self.data = NumberedStream(stream)
        self._source, self._batch_size, self._world = f"stream of a {type(stream).__name__}", batch_size, world
        self._at = TrackedState()
        self._loaded: dict[str, Any] | None = None
        self._heads = Heads(stream)

    def _stand(self, update: int, state: Mapping[str, Any] | None) -> None:
        self._at, self._loaded = TrackedState(), None
        if state is not None:
            self._at = TrackedState.from_state(state, f"{self._source}, {self._rows} rows a step")
            self._loaded = loaded_mark(state)
        if self._at.epoch and self._pass_steps is None:
            raise ResumeError(
                f"the checkpoint was taken in pass {self._at.epoch} over the stream. Trainer cannot know where passes "
                "over a stream without a length end: it would leave out samples of the first one. Give the dataset a "
                "__len__, or resume from a checkpoint of the first pass."
            )

    def begin_epoch(self) -> None:
        """Note that the trainer begins a pass; after a resume inside a pass it is the same one."""
        is_over = self._pass_steps is not None and self._at.batch >= self._pass_steps
        if self._at.batch and (is_over or self._loaded is None):
            self._at.next_pass()

    @property
    def _pass_steps(self) -> int | None:
        """Steps of a pass, where the stream has a length."""
        try:
            return -(-len(self.data) // self._rows)
        except TypeError:
            return None

    def counted_by(self, collator: Any) -> RowCounter:
        """Return what compares the batches of a collator with their samples."""
        counter = super().counted_by(collator)
        if counter.leaves_out:
            raise ConfigError(
                "the data collator may leave samples out (its rows is a function), and Accelerate cuts the batches of "
                "a stream by the rows they have: nothing would say which samples are gone. Leave them out of the "
                "stream instead."
            )
        return counter

    def note(self, rows: NDArray[np.int64], real: int | None = None, kept: NDArray[np.int64] | None = None) -> Bill:
        """Record that a batch arrived in the training process."""
        slots = self._world.rank * len(rows) + np.arange(len(rows))
        padding = np.zeros(len(rows), bool) if real is None else slots >= real
        names = RowNames(np.zeros(len(rows), np.int32), rows, padding, kept)
        bill = observed_bill(self._at, self._world, names, (NAME,))
        if self._loaded is not None:
            self.ledger.begin(bill.step, world=self._world, loaded=self._loaded)
            self._loaded = None
        self._at.count(self._rows if real is None else real)
        self._at.note(np.zeros(len(rows), np.int32), rows)
        Trackers([self.ledger]).update(bill, None)
        self._fetched.append(bill)
        return bill

    def look(self, bill: Bill, batch: Any, rows: int) -> None:
        """Compare the first batches of the workers of this process, too."""
        super().look(bill, batch, rows)
        worker, count = stream_place(int(bill.idx[0])) if len(bill) else (0, -1)
        if count == 0 and (text := self._heads.look(worker, batch)) is not None:
            self.ledger.note(bill.step, text)

    @property
    def _rows(self) -> int:
        return self._batch_size * self._world.world_size

    def state(self) -> dict[str, Any]:
        """Return where the run is: after the last update."""
        mark = Trackers([self._ledger or self._ended or self.ledger]).mark(self._at.step)
        return {**self._at.to_state(f"{self._source}, {self._rows} rows a step"), **marked(mark or self._loaded)}


def check_stream(options: Mapping[str, Any], dispatches: bool | None, num_processes: int) -> None:
    """Refuse what needs an order, and what hides which rows Accelerate repeats."""
    if options:
        raise ConfigError(
            f"{', '.join(options)} needs an order that can be planned, but train_dataset is a stream: what it yields "
            "is recorded, nothing else. Give the trainer datasets with a length, or mix streams before the trainer."
        )
    if dispatches is False and num_processes > 1:
        raise ConfigError(
            "accelerator_config.dispatch_batches=False lets every process read the whole stream and repeat rows that "
            "cannot be told from others. Leave it at its default: the first process reads and passes on."
        )
