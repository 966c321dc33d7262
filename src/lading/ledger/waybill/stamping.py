"""Waybills that are under way while training goes on.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lading.errors import LadingError
from lading.ledger.waybill.covered import check_names, files_of, hashed
from lading.ledger.waybill.waybill import (
    CLAIMS,
    WAYBILL,
    CoveredFile,
    Waybill,
    checked,
    described_by,
    own_path,
    waybill_at,
)
from lading.runtime.files import written_aside

Make = Callable[[dict[str, CoveredFile]], Waybill]
Record = Callable[[Path, Waybill], Any]


class Stamps:
    """The waybills of a ledger that are not in place yet.

    Args:
        record: Is called, by the thread that hashes, with each checkpoint whose waybill is ready to be put in place.
    """

    def __init__(self, record: Record = lambda checkpoint, waybill: None) -> None:
        self._works: list[Stamping] = []
        self._record, self._has_warned = record, False

    def begin(self, checkpoint: Path, make: Make, after: Any = None) -> None:
        """Begin to hash a checkpoint that was saved; one that is under way for the same place is dropped.

        Args:
            checkpoint: Folder or file.
            make: Returns the waybill, given the files.
            after: The future of a save that is still under way.
        """
        self.settle()
        for work in self._works:
            work.is_void |= work.checkpoint == checkpoint
        before = self._works[-1] if self._works else None
        self._works.append(Stamping(checkpoint, make, after, before, self._record))
        self._works[-1].start()

    def settle(self, *, wait: bool = False) -> list[Stamping]:
        """Put in place what is ready, in the thread that trains; return it."""
        placed: list[Stamping] = []
        while self._works and (wait or not self._works[0].is_alive()):
            work = self._works.pop(0)
            work.join()
            try:
                placed += [work] if work.place() else []
            except Exception as error:  # whatever it is, training goes on
                self._warn(work.checkpoint, error)
        return placed

    def _warn(self, checkpoint: Path, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        why = getattr(error, "strerror", None) or str(error)
        warnings.warn(
            f"the waybill of {checkpoint} was not written: {why.rstrip('.')}. Training goes on, and this is said once; "
            "make it later with `lading model stamp CKPT --run RUN`.",
            stacklevel=5,
        )


class Stamping(threading.Thread):
    """Hash one checkpoint and make its waybill; ``place`` is the training thread's."""

    def __init__(
        self, checkpoint: Path, make: Make, after: Any, before: threading.Thread | None, record: Record
    ) -> None:
        super().__init__(name="lading-waybill", daemon=True)
        self.checkpoint = checkpoint
        self.is_void = False
        self._make, self._after, self._before, self._record = make, after, before, record
        self._content = b""
        self._error: BaseException | None = None
        remove_stale(checkpoint)
        self._identity = _identity(checkpoint)

    def run(self) -> None:
        """Hash, one checkpoint after the other, make the waybill and let the log know it."""
        try:
            if self._before is not None:
                self._before.join()
                self._before = None
            if self._after is not None:
                self._after.result()
                self._identity = _identity(self.checkpoint)
            files = files_of(self.checkpoint)
            check_names(self.checkpoint, files)
            self._content, waybill = checked(self._make(hashed(files)), self.checkpoint)
            self._record(self.checkpoint, waybill)
        except BaseException as error:  # raised in the thread that trains
            self._error = error

    def place(self) -> bool:
        """Put the waybill in place; False where the checkpoint is gone or another one."""
        if self.is_void or self._identity is None or _identity(self.checkpoint) != self._identity:
            return False
        if self._error is not None:
            raise self._error
        with contextlib.suppress(FileNotFoundError):
            _write(self.checkpoint, self._content, synced=False)
            return True
        return False


def stamp_now(checkpoint: Path, make: Make) -> Waybill:
    """Write the waybill of a checkpoint and return it."""
    files = files_of(checkpoint)
    check_names(checkpoint, files)
    content, waybill = checked(make(hashed(files, 0)), checkpoint)
    _write(checkpoint, content, synced=True)
    return waybill


def _write(checkpoint: Path, content: bytes, *, synced: bool) -> None:
    with times_kept(checkpoint), written_aside(own_path(checkpoint), synced=synced) as file:
        file.write(content)
    if not checkpoint.is_dir():
        _sweep(checkpoint.parent)


def remove_stale(checkpoint: Path) -> None:
    """Remove the waybill of files that are written anew, or are about to be."""
    path = own_path(checkpoint)
    if os.path.lexists(path):
        with times_kept(checkpoint), contextlib.suppress(FileNotFoundError):
            path.unlink()


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


def _sweep(folder: Path) -> None:
    """Remove the waybills of single files that are gone, and the claims beside them."""
    for path in folder.glob(f"*.{WAYBILL}"):
        file = described_by(path)
        if file.name and not os.path.lexists(file):
            with contextlib.suppress(OSError, LadingError):
                waybill_at(path)  # what is no waybill is not ours
                path.unlink()
                own_path(file, CLAIMS).unlink(missing_ok=True)


def _identity(checkpoint: Path) -> tuple[int, ...] | None:
    """Return what tells a checkpoint from another one of its name; None where there is none."""
    try:
        found = checkpoint.stat()
    except OSError:
        return None
    own = (found.st_dev, found.st_ino)
    return own if checkpoint.is_dir() else (*own, found.st_size, found.st_mtime_ns)
