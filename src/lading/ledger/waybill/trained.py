"""The waybill of a checkpoint that training saves: from the loader's state, the run's log and its rows."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import LadingError, LedgerError
from lading.ledger.description import KnownRun
from lading.ledger.launch import MOST_RANKS, Base, Launch, Range
from lading.ledger.lineage import lineage
from lading.ledger.log import repeat_until_first
from lading.ledger.opening import checked_mark
from lading.ledger.run_folder import RunFolder
from lading.ledger.seal import sealed_by
from lading.ledger.waybill.stamping import Stamps
from lading.ledger.waybill.waybill import (
    TRAINING,
    CoveredFile,
    Moment,
    Total,
    Waybill,
    checkpoint_path,
    read_waybill,
)
from lading.runtime.paths import local_path

Given = str | os.PathLike[str]
_MOST_TAKEN = 64
_BESIDE_TRAINING = 64  # ranks; of more the rows are too many to read beside training; readers of the run count them


def bases_of(given: Given | Iterable[Given]) -> tuple[Base, ...]:
    """Return how children name some checkpoints: by the SHA-256 of their waybills."""
    several = [given] if isinstance(given, str | os.PathLike) else list(given)
    paths = [checkpoint_path(path) for path in several]
    return tuple(Base(read_waybill(path).sha256, str(path.absolute())) for path in paths)


class Waybills:
    """The waybills of the checkpoints that one ledger's training saves.

    Args:
        run: Folder of the run.
        base: Checkpoints that the weights were loaded from.
    """

    def __init__(self, run: RunFolder, base: Given | Iterable[Given]) -> None:
        self.bases = bases_of(base)
        self._run = KnownRun(run)
        self._stamps = Stamps(partial(record_checkpoint, self._run))
        self._taken: dict[tuple[str, int], tuple[int | None, tuple[Range, ...]]] = {}
        self.update: int | None = None  # the last one that was committed

    def take(self, launch: str, step: int, pending: Iterable[Sequence[int]]) -> None:
        """Remember what a state is taken with: the last update, and the steps that wait for theirs."""
        self._taken[launch, step] = self.update, tuple((first, stop) for first, stop in pending)
        if len(self._taken) > _MOST_TAKEN:
            del self._taken[next(iter(self._taken))]

    def begin(
        self, path: Given, state: Mapping[str, Any], run: str, launch: Launch | None, after: Any, *, wait: bool = False
    ) -> None:
        """Begin the waybill of a checkpoint that was saved with a state of this run and attempt."""
        mark = checked_mark(state)
        if mark is None or launch is None or (mark["run"], mark["launch"]) != (run, launch.sha256):
            found = f"attempt {mark['attempt']} of run {mark['run'][:8]}" if mark and mark["run"] else "no run"
            here = "has recorded nothing yet" if launch is None else f"is in attempt {launch.attempt} of run {run[:8]}"
            raise LedgerError(
                f"the state of this checkpoint was taken in {found}, and this ledger {here}: expected a state of the "
                "same. Make the ledger the loader's tracker, and pass what loader.state_dict() returned for it."
            )
        update, pending = self._taken.get((launch.sha256, mark["step"]), (None, ()))
        moment = Moment(run, launch.sha256, launch.attempt, mark["step"], update, launch.plan_sha256, None, pending)
        checkpoint = checkpoint_path(path) if after is None else local_path(path)  # such a save may not have begun yet
        make = partial(trained_waybill, self._run, moment, most_ranks=_BESIDE_TRAINING)
        self._stamps.begin(checkpoint, make, after)
        self.settle(wait=wait)

    def settle(self, *, wait: bool = False) -> None:
        """Put in place what is ready; called by the thread that trains."""
        self._stamps.settle(wait=wait)

    def complete(self) -> None:
        """Put everything in place, however long it takes."""
        self.settle(wait=True)


def trained_waybill(
    run: KnownRun,
    moment: Moment,
    files: dict[str, CoveredFile],
    parents: Iterable[Base] = (),
    most_ranks: int = MOST_RANKS,
) -> Waybill:
    """Return the waybill of a checkpoint that training saved.

    Args:
        run: The run.
        moment: Where it stood.
        files: The checkpoint's files.
        parents: What the weights were loaded from, where the log does not know it.
        most_ranks: Totals are left out where more ranks recorded: it takes too long.
    """
    from lading.ledger.waybill.consumed import consumed  # here: it reads parts, by Arrow

    log = run.log()
    spans = lineage(log.launches, moment.attempt)
    bases = [*(base for span in spans for base in log.launches[span.attempt].bases), *parents]
    totals: dict[str, Total] = {}
    with contextlib.suppress(LadingError):  # rows that cannot be read are what `verify` is for
        totals = consumed(run, [moment], most_ranks)
    once = tuple({base.waybill: base for base in bases}.values())
    moment = dataclasses.replace(moment, seal=sealed_by(log))
    return Waybill(TRAINING, files, moment, once, str(run.folder.path.absolute()), totals)


def record_checkpoint(run: KnownRun, checkpoint: Path, waybill: Waybill) -> None:
    """Add a checkpoint that training saved to the log of its run."""
    moment = waybill.moment
    assert moment is not None
    fields = {"where": str(checkpoint.absolute()), "waybill": waybill.sha256, "attempt": moment.attempt}
    fields |= {"step": moment.step, "update": moment.update, **({"pending": moment.pending} if moment.pending else {})}
    repeat_until_first(run.folder, run.log, "checkpoint", fields)
