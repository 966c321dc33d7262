"""Locks that end with their process, and what is done instead where the system has none.

flock      an open file or folder; the kernel lets go of it when the process ends
no flock   network file systems, Windows: a file ``.lock`` in the folder names its process; a dead one's is removed
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from lading.runtime.processes import is_running, process_identity

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None  # a file system may still refuse them
_UNSIGNED_SECONDS = 60.0  # how long a mark without a name in it is believed


def try_lock(handle: int) -> bool | None:
    """Lock an open file; return False where another process has it, None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # not on this file system
        return None
    return True


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Hold a folder until the block ends; False where another process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY) if HAS_LOCKS else None
    try:
        locked = None if handle is None else try_lock(handle)
        if locked is None:
            with _marked(folder / ".lock") as ours:
                yield ours
        else:
            yield locked
    finally:
        if handle is not None:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)  # a process that was forked meanwhile would keep it
            os.close(handle)


@contextlib.contextmanager
def _marked(mark: Path) -> Iterator[bool]:
    while not _made(mark):
        if _owner_lives(mark):
            yield False
            return
        mark.unlink(missing_ok=True)
    try:
        yield True
    finally:
        mark.unlink(missing_ok=True)


def _made(mark: Path) -> bool:
    try:
        with open(mark, "x") as file:
            file.write(" ".join(map(str, process_identity(os.getpid()))))
    except FileExistsError:
        return False
    return True


def _owner_lives(mark: Path) -> bool:
    try:
        words = mark.read_text().split()
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            return time.time() - mark.stat().st_mtime < _UNSIGNED_SECONDS
    except FileNotFoundError:
        return False
    return is_running(int(words[0]), int(words[1]))
