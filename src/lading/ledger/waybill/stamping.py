"""The waybills of checkpoints that training saves: from the loader's state, the run's log and its rows.

    training thread   save, checkpoint() ─┐            ┌─ next commit: a small file, the folder's times kept
    another thread                        └─ hash, log ┘

A waybill that came late would make a folder look newer than it is, and a
trainer that keeps the newest would delete the wrong one: hence the times. A
checkpoint that is gone by then, or was written again, gets none. Nothing is laid
beside a checkpoint: Accelerate takes whatever is there for a checkpoint. The small
file is not synced, as the weights are not: training never waits for the disk.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from lading.ledger.waybill.covered import check_names, files_of, hashed
from lading.ledger.waybill.waybill import (
    CLAIMS,
    TRAINING,
    WAYBILL,
    CoveredFile,
    Given,
    Moment,
    Total,
    Waybill,
    checked,
    checkpoint_path,
    described_by,
    own_path,
    read_waybill,
    waybill_at,
)
from lading.runtime.files import written_aside
from lading.runtime.paths import local_path

Make = Callable[[dict[str, CoveredFile]], Waybill]
_MOST_TAKEN = 64
_BESIDE_TRAINING = 64  # ranks; of more the rows are too many to read beside training; readers of the run count them


class Stamps:
    """The waybills of a ledger that are not in place yet."""

    def __init__(self) -> None:
        self._works: list[Stamping] = []
        self._has_warned = False

    def begin(self, checkpoint: Path, prepare: Callable[[Path], bytes], after: Any = None) -> None:
        """Begin to hash a checkpoint that was saved; one that is under way for the same place is dropped.

        Args:
            checkpoint: Folder or file.
            prepare: Hashes it and returns the content of its waybill, in a thread of its own.
            after: The future of a save that is still under way.
        """
        self.settle()
        for work in self._works:
            work.is_void |= work.checkpoint == checkpoint
        remove_stale(checkpoint)
        self._works.append(Stamping(checkpoint, prepare, after, self._works[-1] if self._works else None))
        self._works[-1].start()

    def settle(self, *, wait: bool = False) -> list[Stamping]:
        """Put in place what is ready, or everything, in the thread that trains; return it."""
        placed: list[Stamping] = []
        while self._works and (wait or not self._works[0].is_alive()):
            work = self._works.pop(0)
            work.join()
            try:
                placed += [work] if work.place() else []
            except Exception as error:  # whatever it is, training goes on
                if not self._has_warned:
                    why = getattr(error, "strerror", None) or str(error)
                    warnings.warn(
                        f"the waybill of {work.checkpoint} was not written: {why.rstrip('.')}. Training goes on, and "
                        "this is said once; make it later with `lading model stamp CKPT --run RUN`.",
                        stacklevel=3,
                    )
                self._has_warned = True
        return placed


class Waybills(Stamps):
    """The waybills of the checkpoints that one ledger's training saves.

    Args:
        run: Folder of the run.
        base: Checkpoints that the weights were loaded from.
    """

    def __init__(self, run: RunFolder, base: Given | Iterable[Given]) -> None:
        super().__init__()
        self.bases, self._run = bases_of(base), KnownRun(run)
        self._taken: dict[tuple[str, int], tuple[int | None, tuple[Range, ...]]] = {}
        self.update: int | None = None  # the last one that was committed

    def take(self, launch: str, step: int, pending: Iterable[Sequence[int]]) -> None:
        """Remember what a state is taken with: the last update, and the steps that wait for theirs."""
        self._taken[launch, step] = self.update, tuple((first, stop) for first, stop in pending)
        if len(self._taken) > _MOST_TAKEN:
            del self._taken[next(iter(self._taken))]

    def begin_with(self, path: Given, state: Mapping[str, Any], run: str, launch: Launch | None, after: Any) -> None:
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
        self.begin(checkpoint, partial(self._prepare, moment), after)

    def _prepare(self, moment: Moment, checkpoint: Path) -> bytes:
        make = partial(trained_waybill, self._run, moment, most_ranks=_BESIDE_TRAINING)
        content, waybill = prepared(checkpoint, make, threads=1)
        record_checkpoint(self._run, checkpoint, waybill)
        return content


class Stamping(threading.Thread):
    """Hash one checkpoint and prepare its waybill; ``place`` is the training thread's."""

    def __init__(
        self, checkpoint: Path, prepare: Callable[[Path], bytes], after: Any, before: threading.Thread | None
    ) -> None:
        super().__init__(name="lading-waybill", daemon=True)
        self.checkpoint, self.is_void = checkpoint, False
        self._prepare, self._after, self._before = prepare, after, before
        self._identity, self._found = _identity(checkpoint), b""
        self._error: BaseException | None = None

    def run(self) -> None:
        """Prepare the waybill, one checkpoint after the other."""
        try:
            if self._before is not None:
                self._before.join()
                self._before = None
            if self._after is not None:
                self._after.result()
                self._identity = _identity(self.checkpoint)
            self._found = self._prepare(self.checkpoint)
        except BaseException as error:  # raised in the thread that trains
            self._error = error

    def place(self) -> bool:
        """Put the waybill in place; False where the checkpoint is gone or another one."""
        if self.is_void or self._identity is None or _identity(self.checkpoint) != self._identity:
            return False
        if self._error is not None:
            raise self._error
        with contextlib.suppress(FileNotFoundError):
            write_waybill(self.checkpoint, self._found, synced=False)
            return True
        return False


def prepared(checkpoint: Path, make: Make, threads: int = 0) -> tuple[bytes, Waybill]:
    """Return the content of a checkpoint's waybill, given what makes it of its files; and it as every reader takes it.

    Args:
        checkpoint: Folder or file.
        make: Returns the waybill, given the files.
        threads: Files that are hashed at once; 0: as many as there are processors.
    """
    files = files_of(checkpoint)
    check_names(checkpoint, files)
    return checked(make(hashed(files, threads)), checkpoint)


def write_waybill(checkpoint: Path, content: bytes, *, synced: bool = True) -> None:
    """Put a waybill beside its files."""
    with times_kept(checkpoint), written_aside(own_path(checkpoint), synced=synced) as file:
        file.write(content)
    for path in () if checkpoint.is_dir() else checkpoint.parent.glob(f"*.{WAYBILL}"):  # of files that are gone
        gone = described_by(path)
        if gone.name and not os.path.lexists(gone):
            with contextlib.suppress(OSError, LadingError):
                waybill_at(path)  # what is no waybill is not ours
                path.unlink()
                own_path(gone, CLAIMS).unlink(missing_ok=True)


def remove_stale(checkpoint: Path) -> None:
    """Remove the waybill of files that are written anew, or are about to be."""
    path = own_path(checkpoint)
    if os.path.lexists(path):
        with times_kept(checkpoint):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def times_kept(checkpoint: Path) -> Iterator[None]:
    """Leave a folder's times as they are: trainers delete by them."""
    before = checkpoint.stat() if checkpoint.is_dir() else None
    try:
        yield
    finally:
        if before is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(checkpoint, ns=(before.st_atime_ns, before.st_mtime_ns))


def _identity(checkpoint: Path) -> tuple[int, ...] | None:
    """Return what tells a checkpoint from another one of its name; None where there is none."""
    try:
        found = checkpoint.stat()
    except OSError:
        return None
    own = (found.st_dev, found.st_ino)
    return own if checkpoint.is_dir() else (*own, found.st_size, found.st_mtime_ns)


def bases_of(given: Given | Iterable[Given]) -> tuple[Base, ...]:
    """Return how children name some checkpoints: by the SHA-256 of their waybills."""
    paths = map(checkpoint_path, [given] if isinstance(given, str | os.PathLike) else given)
    return tuple(Base(read_waybill(path).sha256, str(path.absolute())) for path in paths)


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

    log, totals = run.log(), dict[str, Total]()
    launches = [log.launches[span.attempt] for span in lineage(log.launches, moment.attempt)]
    bases = {base.waybill: base for base in (*(base for launch in launches for base in launch.bases), *parents)}
    with contextlib.suppress(LadingError):  # rows that cannot be read are what `verify` is for
        if max(launch.world_size for launch in launches) <= most_ranks:
            totals = consumed(run, [moment])
    moment = replace(moment, seal=sealed_by(log))
    return Waybill(TRAINING, files, moment, tuple(bases.values()), str(run.folder.path.absolute()), totals)


def record_checkpoint(run: KnownRun, checkpoint: Path, waybill: Waybill) -> None:
    """Add a checkpoint that training saved to the log of its run."""
    moment = waybill.moment
    assert moment is not None
    fields = {"where": str(checkpoint.absolute()), "waybill": waybill.sha256, "attempt": moment.attempt}
    fields |= {"step": moment.step, "update": moment.update, **({"pending": moment.pending} if moment.pending else {})}
    repeat_until_first(run.folder, run.log, "checkpoint", fields)
