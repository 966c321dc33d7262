"""Writing so that a crash, at any moment, leaves the old or the new and never a mixture.

file      bytes ──▶ .name.<token>.aside  ──▶ fsync ──▶ rename to name, or hard link ──▶ fsync of the folder
folder    files ──▶ .name.<token>.aside/ ──▶ fsync of each ──▶ swap with name in one call ──▶ fsync ──▶ remove the old
leftover  a writer holds a lock on what it writes aside; the lock ends with the process, so ``clean_up`` knows the dead
Journal   one JSON line with its CRC, appended in one write; torn and altered lines are recognised
lock      ``flock`` of an open file or folder; where there is none (network file systems, Windows) a file ``.lock`` in
          the folder names its process, and a dead one's is removed
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

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


_ASIDE = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}\.(?P<kind>aside|old)")
_DEAD_AFTER_SECONDS = 24 * 3600.0  # where locks do not work
_KEEP, _EXCHANGE = 1, 2  # RENAME_NOREPLACE and RENAME_EXCHANGE of renameat2
_UNABLE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would write another end of line


def sync_folder(folder: Path) -> None:
    """Make names created, renamed or removed in a folder survive a power cut."""
    handle = _open_folder(folder)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems cannot sync folders; the data itself is synced
        pass
    finally:
        os.close(handle)


def _open_folder(folder: Path) -> int:
    """Open a folder, to sync or to lock it; Windows, which has neither, opens nothing instead."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY) if HAS_LOCKS else os.open(os.devnull, os.O_RDONLY)


def sync_tree(folder: Path) -> None:
    """Make every file and name below a folder survive a power cut."""
    for place, _, files in os.walk(folder, topdown=False):
        for name in files:
            with contextlib.suppress(FileNotFoundError), open(os.path.join(place, name), "rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(place))


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing, so that they survive a power cut."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    if not missing and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


@contextlib.contextmanager
def written_aside(
    path: Path, place: Callable[[Path, Path], Any] = os.replace, *, synced: bool = True
) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` when all of it is on disk, or leaves no trace.

    Args:
        place: Gives the temporary file its name.
        synced: Whether to wait for the disk; without, a power cut may leave an empty file.
    """
    aside, handle = _claimed(path, lambda new: os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        with open(aside, "wb") as file:
            yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        if not HAS_LOCKS:  # Windows moves no file that is open; what is held until the end is nothing then
            os.close(handle)
            handle = os.open(os.devnull, os.O_RDONLY)
        place(aside, path)
        if synced:
            sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
        os.close(handle)  # the lock ends with it


def write_aside(path: Path, content: bytes) -> None:
    """Replace a file by new content, all or nothing."""
    with written_aside(path) as file:
        file.write(content)


def create_aside(path: Path, content: bytes | Iterable[bytes]) -> bool:
    """Create a file with its content, whole or in pieces, in one go; return False where it exists already."""
    try:
        with written_aside(path, _link) as file:
            file.writelines([content] if isinstance(content, bytes) else content)
    except FileExistsError:
        return False
    return True


def _link(aside: Path, path: Path) -> None:
    """Link ``aside`` to ``path``; fail if it exists. Where there are no hard links: a rename that replaces nothing."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except (OSError, AttributeError):
        _rename_to_new(aside, path)


def _rename_to_new(aside: Path, path: Path) -> None:
    """Rename; fail if the new name exists. Falls back to a racy check where the system cannot do both at once."""
    try:
        _renameat2(aside, path, _KEEP)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        if path.exists():
            raise FileExistsError(str(path)) from None
        os.rename(aside, path)  # on Windows this replaces nothing, either


def renamed(path: Path, new: Path) -> bool:
    """Give a file that is on disk another name in its folder; return False where that name exists already."""
    try:
        _link(path, new)
    except FileExistsError:
        return False
    path.unlink(missing_ok=True)
    sync_folder(new.parent)
    return True


@contextlib.contextmanager
def named_aside(path: Path) -> Iterator[Path]:
    """Give the name of a temporary file that becomes ``path``: ``written_aside`` for libraries that open by name."""
    clean_up(path.parent, path.name)
    with _folder_aside(path) as folder:
        aside = folder / path.name
        yield aside
        sync_tree(folder)
        os.replace(aside, path)
        sync_folder(path.parent)


@contextlib.contextmanager
def built_aside(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give an empty folder that becomes ``path`` when all of it is on disk, or leaves no trace.

    There is no moment without the old folder or the new one (where the file system cannot swap names there is an
    instant; the next build puts the old one back if the process dies in it). Leftovers of dead builds are removed.

    Args:
        replace: Whether a folder that is there is replaced; otherwise it raises FileExistsError.
    """
    path = Path(os.path.realpath(path))  # what a symbolic link points to is replaced, not the link
    make_folder(path.parent)
    clean_up(path.parent, path.name)
    with _folder_aside(path) as aside:
        yield aside
        sync_tree(aside)
        if not path.exists():
            os.rename(aside, path)
        elif replace:
            _swap(aside, path)
        else:
            raise FileExistsError(errno.EEXIST, "the folder exists already", str(path))
        sync_folder(path.parent)


def is_aside(name: str) -> bool:
    """Say whether a name is one of those that something is written aside under."""
    return _ASIDE.fullmatch(name) is not None


def files_below(folder: Path, enters: Callable[[Path], bool] = Path.is_dir) -> Iterator[tuple[str, Path]]:
    """Yield each file below a folder, and links to files, by relative path; nothing that is being written aside.

    Args:
        enters: Says of a folder below whether to look into it.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if enters(path):
                    yield from ((f"{entry.name}/{name}", file) for name, file in files_below(path, enters))
            elif entry.is_file() and not is_aside(entry.name):
                yield entry.name, path


def clean_up(folder: Path, name: str | None = None) -> None:
    """Remove what dead processes left in a folder when they wrote aside; put back what they did not replace.

    With a name: only what was to become this file or folder.
    """
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return
    for entry in entries:
        match = _ASIDE.fullmatch(entry)
        if match is not None and name in (None, match["name"]):
            with contextlib.suppress(OSError):  # removed by another process meanwhile, or not ours to remove
                _clean_up(folder / entry, folder / match["name"], is_old=match["kind"] == "old")


def _clean_up(left: Path, path: Path, *, is_old: bool) -> None:
    handle = os.open(left, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if not _is_dead(handle):
            return
        if is_old and not path.exists():  # its successor never came
            os.rename(left, path)
            sync_folder(path.parent)
        else:
            _remove(left)
    finally:
        os.close(handle)


def _is_dead(handle: int) -> bool:
    locked = try_lock(handle)
    return time.time() - os.fstat(handle).st_mtime > _DEAD_AFTER_SECONDS if locked is None else locked


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _folder_aside(path: Path) -> Iterator[Path]:
    def make(new: Path) -> int:
        os.mkdir(new)
        return _open_folder(new)

    aside, handle = _claimed(path, make)
    try:
        yield aside
    finally:
        _remove(aside)  # what failed, or what a swap left there
        os.close(handle)


def _claimed(path: Path, make: Callable[[Path], int]) -> tuple[Path, int]:
    """Make a file or folder beside ``path`` and lock it; return it with the handle that holds the lock."""
    while True:
        aside = path.with_name(f".{path.name}.{os.urandom(6).hex()}.aside")
        try:
            handle = make(aside)
        except FileNotFoundError:
            if not path.parent.is_dir():
                raise
            continue  # a folder that another process cleaned up before it was locked
        if _is_ours(aside, handle):
            return aside, handle
        os.close(handle)


def _is_ours(aside: Path, handle: int) -> bool:
    locked = try_lock(handle)
    if not locked:  # another process is cleaning it up, or there are no locks
        return locked is None
    try:
        return os.path.samestat(os.stat(aside), os.fstat(handle))
    except FileNotFoundError:
        return False


def _swap(aside: Path, path: Path) -> None:
    """Exchange two folders; the old one is at ``aside`` afterwards."""
    try:
        _renameat2(aside, path, _EXCHANGE)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
        _swap_in_two_steps(aside, path)


def _renameat2(one: Path, other: Path, flag: int) -> None:
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if HAS_LOCKS else None
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here = -100  # AT_FDCWD
    if renameat2(here, os.fsencode(one), here, os.fsencode(other), flag):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(other))


def _swap_in_two_steps(aside: Path, path: Path) -> None:
    old = aside.with_suffix(".old")
    handle = _open_folder(path)
    try:
        try_lock(handle)
        os.rename(path, old)
        os.rename(aside, path)
        sync_folder(path.parent)
        os.rename(old, aside)
    finally:
        os.close(handle)


def json_bytes(value: Any) -> bytes:
    """Return a value as readable JSON."""
    return (json.dumps(value, indent=1, sort_keys=False) + "\n").encode()


def journal_line(value: dict[str, Any]) -> bytes:
    """Return a line of a journal, with its CRC."""
    text = json.dumps(value, separators=(",", ":"))
    return f'{{"crc":{zlib.crc32(text.encode())},{text[1:]}\n'.encode()


@dataclass(frozen=True)
class Line:
    """One line of a journal.

    Attributes:
        number: Line number in the file, from 1.
        value: What was written; None where the line is damaged.
        torn: True where the line is the beginning of one that a crash cut off.
    """

    number: int
    value: dict[str, Any] | None
    torn: bool = False


class Journal:
    """A file of JSON lines, made by the first, to which one only appends; each line carries its own CRC."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, *values: dict[str, Any], syncs: bool = True) -> None:
        """Add a line for each value, and wait until they are on disk."""
        line = b"".join(map(journal_line, values))
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o644)
        try:
            size = os.fstat(handle).st_size
            os.lseek(handle, max(size - 1, 0), os.SEEK_SET)
            if size and os.read(handle, 1) != b"\n":  # a torn line before us must not swallow ours
                line = b"\n" + line
            if os.write(handle, line) != len(line):
                os.ftruncate(handle, size)
                raise OSError(28, "No space left on device", str(self.path))
            if syncs:
                os.fsync(handle)
        finally:
            os.close(handle)

    def lines(self) -> list[Line]:
        """Return every line, damaged and torn ones marked."""
        return lines_of(self.content())

    def content(self) -> bytes:
        """Return the file as it is; nothing where there is none."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""

    def values(self) -> list[dict[str, Any]]:
        """Return what the good lines say."""
        return [line.value for line in self.lines() if line.value is not None]


def lines_of(content: bytes) -> list[Line]:
    """Return every line of a journal's content, damaged and torn ones marked."""
    return [_parse(number, text) for number, text in enumerate(content.split(b"\n"), start=1) if text.strip()]


def _parse(number: int, text: bytes) -> Line:
    try:
        value = json.loads(text)
        crc = value.pop("crc")
    except (ValueError, KeyError, AttributeError, TypeError):  # no JSON, or no object
        return Line(number, None, torn=not text.rstrip().endswith(b"}"))
    intact = zlib.crc32(json.dumps(value, separators=(",", ":")).encode()) == crc
    return Line(number, value if intact else None)
