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
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, LadingError, LedgerError
from lading.ledger.description import KnownRun
from lading.ledger.launch import MOST_RANKS, Base, Launch, Range
from lading.ledger.lineage import lineage
from lading.ledger.log import repeat_until_first
from lading.ledger.opening import checked_mark
from lading.ledger.run_folder import RunFolder
from lading.ledger.seal import sealed_by
from lading.ledger.waybill import waybill as waybills
from lading.ledger.waybill.covered import check_complete, files_of, hashed
from lading.ledger.waybill.waybill import CoveredFile, Given, Moment, Total, Waybill, checkpoint_path, own_path
from lading.runtime.fields import Origin
from lading.runtime.files import written_aside
from lading.runtime.paths import local_path

Identity = tuple[int, ...]
_Stamped = tuple[Identity | None, Waybill | None]  # None: the checkpoint is gone, or another one

_MOST_TAKEN = 64
_WAY_OUT = "Nothing is written. Give the --run that trained it, or say what was --made and --from what."
_BESIDE_TRAINING = 64  # ranks; of more the rows are too many to read beside training; readers of the run count them


class Waybills:
    """The waybills of the checkpoints that the training of a run saves, until they are in place."""

    def __init__(self, run: RunFolder, base: Given | Iterable[Given] = ()) -> None:
        self.bases, self._run = bases_of(base), KnownRun(run)
        self._taken: dict[tuple[str, int], tuple[int | None, tuple[Range, ...]]] = {}
        self.update: int | None = None  # the last one that was committed
        self._works: dict[Path, Future[_Stamped]] = {}  # in the order in which the thread hashes them
        self._thread: ThreadPoolExecutor | None = None  # a ledger that has saved nothing can be sent to a process
        self._has_warned = False

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
        self.begin(checkpoint, partial(trained_waybill, self._run, moment, most_ranks=_BESIDE_TRAINING), after)

    def begin(self, checkpoint: Path, waybill: Callable[[], Waybill], after: Any = None) -> None:
        """Begin to hash a checkpoint that was saved; one that is under way for the same place is dropped.

        Args:
            waybill: Gives its waybill, still without its files.
            after: The future of a save that is still under way.
        """
        self.settle()
        self._works.pop(checkpoint, None)  # the thread comes to it first, and it is not put in place
        remove_stale(checkpoint)
        known = _identity(checkpoint)
        self._thread = self._thread or ThreadPoolExecutor(1, "lading-waybill")
        self._works[checkpoint] = self._thread.submit(self._stamped, checkpoint, waybill, after, known)

    def _stamped(
        self, checkpoint: Path, waybill: Callable[[], Waybill], after: Any, known: Identity | None
    ) -> _Stamped:
        if after is not None:
            after.result()
            known = _identity(checkpoint)
        try:
            stamped = prepared(checkpoint, waybill(), is_fast=False)
        except (OSError, LadingError):
            if _identity(checkpoint) == known:
                raise
            return known, None  # it is gone, or another one
        record_checkpoint(self._run, checkpoint, stamped)
        return known, stamped

    def settle(self, *, wait: bool = False) -> int:
        """Put in place what is ready, or everything, in the thread that trains; return how many there are."""
        placed = 0
        for checkpoint, work in list(self._works.items()):
            if not wait and not work.done():
                break
            del self._works[checkpoint]
            try:
                known, waybill = work.result()
                if waybill is not None and _identity(checkpoint) == known:
                    write_waybill(checkpoint, waybill, synced=False)
                    placed += 1
            except Exception as error:  # whatever it is, training goes on
                self._warn(checkpoint, error)
            if not self._works:
                self._thread = None  # it has nothing to do, and ends
        return placed

    def _warn(self, checkpoint: Path, error: Exception) -> None:
        """Say once why a checkpoint has no waybill; of one that is gone nothing."""
        if not self._has_warned and os.path.lexists(checkpoint):
            self._has_warned = True
            why = getattr(error, "strerror", None) or str(error)
            warnings.warn(
                f"the waybill of {checkpoint} was not written: {why.rstrip('.')}. Training goes on, and this is said "
                "once; make it later with `lading model stamp CKPT --run RUN`.",
                stacklevel=4,
            )


def prepared(checkpoint: Path, waybill: Waybill, *, is_fast: bool = True) -> Waybill:
    """Return the waybill of a checkpoint, its files hashed; one that no reader would take is refused before that."""
    files = files_of(checkpoint)
    check_complete(checkpoint, files)
    origin = Origin(f"the waybill of {checkpoint}", ConfigError, _WAY_OUT)
    unread = {name: CoveredFile(path.stat().st_size, "0" * 64) for name, path in files.items()}
    content = replace(waybill, files=unread).to_bytes()
    if len(content) > waybills.MOST_BYTES:
        origin.refuse("", f"at most {waybills.MOST_BYTES} bytes", f"{len(content)}: too many files")
    waybills.waybill_from(content, origin)
    return waybills.waybill_from(replace(waybill, files=hashed(files, is_fast)).to_bytes(), origin)


def write_waybill(checkpoint: Path, waybill: Waybill, *, synced: bool = True) -> None:
    """Put a waybill beside its files, and remove those of single files that are gone."""
    with times_kept(checkpoint), written_aside(own_path(checkpoint), synced=synced) as file:
        file.write(waybill.to_bytes())
    for path in () if checkpoint.is_dir() else checkpoint.parent.glob(f"*.{waybills.WAYBILL}"):
        gone = waybills.described_by(path)
        if gone is not None and not os.path.lexists(gone):
            with contextlib.suppress(OSError, LadingError):
                waybills.waybill_at(path)  # what is no waybill is not ours
                path.unlink()
                own_path(gone, waybills.CLAIMS).unlink(missing_ok=True)


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


def _identity(checkpoint: Path) -> Identity | None:
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
    return tuple(Base(waybills.read_waybill(path).sha256, str(path.absolute())) for path in paths)


def trained_waybill(
    run: KnownRun, moment: Moment, parents: Iterable[Base] = (), most_ranks: int = MOST_RANKS
) -> Waybill:
    """Return the waybill of a checkpoint that training saved, still without its files.

    Args:
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
    return Waybill(waybills.TRAINING, {}, moment, tuple(bases.values()), str(run.folder.path.absolute()), totals)


def record_checkpoint(run: KnownRun, checkpoint: Path, waybill: Waybill) -> None:
    """Add a checkpoint that training saved to the log of its run."""
    if (moment := waybill.moment) is None:
        return
    fields = {"where": str(checkpoint.absolute()), "waybill": waybill.sha256, "attempt": moment.attempt}
    fields |= {"step": moment.step, "update": moment.update, **({"pending": moment.pending} if moment.pending else {})}
    repeat_until_first(run.folder, run.log, "checkpoint", fields)
