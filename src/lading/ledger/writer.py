"""The background writer: training makes rows of bills and fates, a thread does the rest.

    training     deliver, commit, skip ──▶ rows (bounded) ──▶ thread: devices' losses, checks, tail, parts
                 flush ──────────────────▶ waits until all of it is synced

Training packs the rows of some batches together. Bills that waited for the thread took as long again: Python's
collector visited them, and the thread fought for the interpreter.

Rows that cannot be written stay in memory, up to a limit, and are tried again:
a disk that was full for a while leaves no gap. What is on disk is never touched.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lading.errors import ConfigError, CorruptLedgerError, LadingError, LedgerError
from lading.ledger.begun import CLOSED, FAILED, INTERRUPTED, Begun, read_refusal
from lading.ledger.packed import RowBytes
from lading.ledger.rank_store import RankStore, warm_up
from lading.ledger.rows import Rows
from lading.ledger.run_folder import RankFolder
from lading.runtime.fields import is_whole
from lading.runtime.processes import Busy

_TURN_SECONDS = 0.2
_LOOK_SECONDS = 1.0
_CHORES_SECONDS = 0.1
_MOST_ITEMS, _MOST_SAMPLES = 1 << 14, 1 << 21  # that wait for the thread
_UNSAVED_BYTES = 1 << 28


class Writer:
    """Write the rows of one rank and attempt in a thread of its own.

    Args:
        folder: The rank's folder.
        begun: What the rank said when it was about to open.
        rows: Makes rows of bills and fates.
        sync_steps: Sync after this many items, or None.
        sync_seconds: Sync after this much time, or None.
        part_rows: Rows of each table at which a part is closed.
        has_peers: Whether other ranks may be refused, so that this one has to end, too.
        chores: Work that can wait, done bit by bit after the rows: an attempt seals the dead ranks before it.
    """

    def __init__(
        self,
        folder: RankFolder,
        begun: Begun,
        rows: Rows,
        *,
        sync_steps: int | None,
        sync_seconds: float | None,
        part_rows: dict[str, int] | None = None,
        has_peers: bool = False,
        chores: Iterator[None] | None = None,
    ) -> None:
        self._chores = chores or iter(())
        self._refusal: str | None = None
        self._has_peers, self._looked_at = has_peers, 0.0
        self._store, self._rows, self._folder = RankStore(folder, begun, part_rows), rows, folder
        self._sync_steps, self._sync_seconds = sync_steps, sync_seconds
        self._put = self._taken = self._synced = (0, 0)  # items and samples so far
        self._wake, self._news = Bell(), Bell()  # for the thread, and for those who wait for it
        self._asked = self._answered = 0
        self._closing, self._end = False, CLOSED
        self._unsaved: deque[dict[str, RowBytes]] = deque()
        self._synced_at = time.monotonic()
        self._fault: LedgerError | None = None
        self._disk_fault: LedgerError | None = None
        self._told = False
        self.lost_rows, self.unsaved_bytes = 0, _UNSAVED_BYTES
        self.pid, self._busy = os.getpid(), Busy()
        self.is_over = False  # what Python says of a thread is wrong once Ctrl-C came while it was asked
        self._thread = threading.Thread(target=self._run, name="lading-ledger", daemon=True)
        self._thread.start()

    @property
    def has_news(self) -> bool:
        """Whether something could not be written and was not reported yet."""
        if self._fault is None and self._refusal is None and self._disk_fault is None:
            return False  # as a rule
        return self.is_refused or self._fault is not None or (self._disk_fault is not None and not self._told)

    @property
    def is_refused(self) -> bool:
        """Whether another rank may not join this attempt: no step of it will be applied by all ranks."""
        return self._refusal is not None and not self._closing

    def take_error(self, *, insist: bool = False) -> LedgerError | None:
        """Return what could not be written and why: once an outage, or as long as it lasts."""
        if self._refusal is not None and not self._closing:
            return LedgerError(self._refusal)
        fault, self._fault = self._fault, None
        if fault is None and (insist or not self._told):
            fault = self._disk_fault
            self._told = fault is not None
        return fault

    def put(self, method: Callable[..., None], *arguments: Any, samples: int = 0) -> None:
        """Call a method of ``Rows`` about so many samples; waits only where the thread is far behind.

        One thread at a time: the ledger's lock is held.
        """
        rows = self._rows
        with rows.lock:
            try:
                method(rows, *arguments)
            except Exception as error:  # what cannot be recorded must not take the rest with it
                rows.leave_out("a batch, fate or event", error)
            items, before = self._put
            self._put = items + 1, before + samples
        if items - self._taken[0] >= _MOST_ITEMS // 2 or before - self._taken[1] >= _MOST_SAMPLES // 2:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._wake.ring()
        while self._is_full() and not self.is_over:
            self._wake.ring()
            self._news.wait(_TURN_SECONDS)

    def _is_full(self) -> bool:
        return self._put[0] - self._taken[0] > _MOST_ITEMS or self._put[1] - self._taken[1] > _MOST_SAMPLES

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that writes: here nobody does."""
        return os.getpid() != self.pid

    def check_process(self) -> None:
        """Refuse a fork, whose queue nobody empties."""
        if self.is_foreign:
            raise LedgerError(
                f"this ledger was opened in process {self.pid}, and this is process {os.getpid()}, a fork of it: what "
                "it records would go nowhere. Make the ledger, or take its first batch, in the process that trains."
            )

    def flush(self) -> None:
        """Wait until everything passed on is on disk, or could not be written (see ``take_error``)."""
        self._asked = mine = self._asked + 1
        self._wake.ring()
        while self._answered < mine and not self.is_over:
            self._news.wait(_TURN_SECONDS)

    def close(self, end: str = CLOSED) -> None:
        """Write everything, close the last part, say how it ended (``closed`` or ``interrupted``), end the thread."""
        if self.is_foreign:
            return
        if not self._closing:
            warm_up()
            self._end, self._closing = end, True
        while not self.is_over:  # again, where Ctrl-C came while the first caller waited
            self.flush()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._wake.wait(_TURN_SECONDS)
                if self._answer():
                    return
        finally:
            self.is_over = True
            self._news.ring()

    def _answer(self) -> bool:
        """Do what there is to do; say whether that was all."""
        asked, closing = self._asked, self._closing
        try:
            with self._busy:
                self._turn(flush=closing or asked > self._answered, closing=closing)
        except OSError as error:
            self._disk_fault = _explained(error, self._folder)
            self._give_up_some()
        except Exception as error:  # whatever it is, training must hear of it and must not wait for ever
            self._fault = _explained(error, self._folder)
        self._answered = asked
        self._news.ring()
        if closing:
            self._store.abandon()
        return closing

    def _look_for_refusal(self) -> None:
        now = time.monotonic()
        if self._has_peers and now - self._looked_at > _LOOK_SECONDS:
            self._looked_at = now
            try:
                self._refusal = self._refusal or read_refusal(self._folder.begun.parent)
            except CorruptLedgerError as error:  # whatever it says, a rank was refused
                self._refusal = str(error)

    def _turn(self, *, flush: bool, closing: bool) -> None:
        self._look_for_refusal()
        put = self._put
        due = flush or self._due(put[0] - self._synced[0])
        if due:
            self._rows.show_open()
        if closing:
            self._rows.name_open()
        self._take_rows(put)  # before the disk is asked: whatever it does, there is room for more
        self._store.catch_up()
        self._save()
        if due:
            self._store.sync()
            self._synced, self._synced_at = put, time.monotonic()
        self._do_chores()
        if closing:
            self._store.close(self._end)
        else:
            self._store.close_full_part()

    def _do_chores(self) -> None:
        until = time.monotonic() + _CHORES_SECONDS
        try:
            while time.monotonic() < until:
                next(self._chores)
        except (StopIteration, OSError, LadingError):  # what could not be done is left to `lading seal`
            self._chores = iter(())

    def _take_rows(self, put: tuple[int, int]) -> None:
        tables = self._rows.take()
        self._taken = put
        self._news.ring()
        if tables:
            self._unsaved.append(tables)
        self._report(self._rows.take_problems())

    def _report(self, problems: list[str]) -> None:
        """Let training hear of what is not recorded; the first sentence, where there are several."""
        if problems:
            more = f" ({len(problems) - 1} more like this.)" if len(problems) > 1 else ""
            self._fault = LedgerError(problems[0] + more)

    def _due(self, since_sync: int) -> bool:
        if not since_sync:
            return False
        by_steps = self._sync_steps is not None and since_sync >= self._sync_steps
        by_time = self._sync_seconds is not None and time.monotonic() - self._synced_at >= self._sync_seconds
        return by_steps or by_time

    def _give_up_some(self) -> None:
        """Drop the oldest rows that could not be written, where they no longer fit the memory set aside."""
        while len(self._unsaved) > 1 and sum(map(_bytes_of, self._unsaved)) > self.unsaved_bytes:
            tables = self._unsaved.popleft()
            self.lost_rows += sum(rows.rows for rows in tables.values())
            last = max(rows.last_step for rows in tables.values())
            self._fault = LedgerError(
                f"{self.lost_rows} rows of the ledger in {self._folder.path} are lost: it could not be written for so "
                f"long that they no longer fit the memory set aside (last lost: step {last}). `lading verify` will "
                "name the gap."
            )

    def _save(self) -> None:
        while self._unsaved:
            try:
                self._store.add(self._unsaved[0])
            except (OSError, MemoryError):  # tried again
                raise
            except Exception as error:  # it never will
                lost = sum(rows.rows for rows in self._unsaved[0].values())
                self.lost_rows += lost
                self._rows.leave_out(f"a record of {lost} rows", error)
            self._unsaved.popleft()
        self._disk_fault, self._told = None, False  # whatever was wrong with the disk, nothing was lost


class Bell:
    """Wakes a thread that waits, by C code alone: Ctrl-C in a method of Python's events leaves their lock taken."""

    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()

    def ring(self) -> None:
        """Wake who waits, or who waits next."""
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for a ring, so long at the most; it may be an old one."""
        with contextlib.suppress(queue.Empty):
            self._rings.get(timeout=seconds)


def sync_every(flush_every: int | str) -> tuple[int | None, float | None]:
    """Return after how many steps, or seconds, a ledger syncs, as ``flush_every`` says it."""
    if is_whole(flush_every, 1):
        return flush_every, None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*s", flush_every) if isinstance(flush_every, str) else None
    if match is None:
        raise ConfigError(f"flush_every is {flush_every!r}: expected a number of steps (100) or of seconds ('5s').")
    return None, float(match.group(1))


def _bytes_of(tables: dict[str, RowBytes]) -> int:
    return sum(len(rows.structs) + len(rows.texts) for rows in tables.values())


def _explained(error: Exception, folder: RankFolder) -> LedgerError:
    if isinstance(error, LedgerError):
        return error
    why = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    explained = LedgerError(
        f"the ledger in {folder.path} cannot be written: {why}. What was flushed before is safe and readable; make "
        "room or make the folder writable and the rest follows. Pass on_error='warn' to train on regardless."
    )
    explained.__cause__ = error
    return explained


def unwritable(run_dir: Path, error: OSError) -> LedgerError:
    """Return the error of a run that cannot be written."""
    return LedgerError(
        f"the ledger in {run_dir} cannot be written: {error.strerror or error}. Make room, or give run_dir= a folder "
        "that can be written; pass on_error='warn' to train without a record."
    )


def close_forgotten(writer: Writer, before: Callable[[], object], seal: Callable[[], None] | None = None) -> None:
    """Close what a ledger left open that was never closed; a process that an exception ended failed."""
    if writer.is_foreign:  # a fork that ends: the threads it would wait for are not its own
        return
    before()
    last = getattr(sys, "last_value", None)
    writer.close(CLOSED if last is None else INTERRUPTED if isinstance(last, KeyboardInterrupt) else FAILED)
    error = writer.take_error(insist=True)
    if error is not None:
        warnings.warn(str(error), stacklevel=2)
    elif seal is not None:
        seal()


def check_thread(iterates: int) -> None:
    """Refuse to mark a state while another thread iterates: the step it was taken at may be settled by now."""
    if iterates != threading.get_ident():
        other = next((thread for thread in threading.enumerate() if thread.ident == iterates), None)
        if other is not None:
            raise LedgerError(
                f"a state is taken in thread {threading.current_thread().name!r} while thread {other.name!r} "
                "iterates: it would belong to no step. Call state_dict() in the thread that trains, and pass on "
                "what it returns."
            )
