"""Whether another process runs, children that do not outlive their parent, an environment for a while."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_SYNCHRONIZE, _STILL_RUNNING = 0x100000, 258  # of Windows


def process_identity(pid: int) -> tuple[int, int]:
    """Return a process's id and start time: together they are never used again. 0 where it ended or is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (pid, 0) if fields[0] in "ZX" else (pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return pid, 0


def command_line(pid: int, started: int) -> str | None:
    """Return what a process was started with; None where it ended, is another one, or no one says it."""
    if not started or process_identity(pid) != (pid, started):
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return None
    return shlex.join(word.decode(errors="replace") for word in words) or None


def is_running(pid: int, started: int = 0) -> bool:
    """Say whether a process runs; with its start time (``process_identity`` says it), whether it is the same one."""
    found = process_identity(pid)[1]
    if found or Path("/proc/self/stat").exists():
        return found != 0 and started in (0, found)
    if os.name == "nt":
        return _windows_has(pid)
    try:
        os.kill(pid, 0)  # no /proc: only the number is known
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _windows_has(pid: int) -> bool:
    """Ask for a handle of the process: there a signal 0 is Ctrl-C."""
    kernel = vars(ctypes)["windll"].kernel32
    handle = kernel.OpenProcess(_SYNCHRONIZE, 0, pid)
    running = bool(handle) and kernel.WaitForSingleObject(handle, 0) == _STILL_RUNNING
    kernel.CloseHandle(handle)
    return running


def at_fork(**calls: Callable[[], Any]) -> None:
    """``os.register_at_fork``, where processes fork at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, whatever it is doing; end here where that is gone."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def start_method() -> str:
    """Return how worker processes start: the user's choice, else fork, but forkserver where JAX runs threads."""
    import multiprocessing  # here: those who only ask whether a process runs need none of it

    method = multiprocessing.get_start_method(allow_none=True) or "fork"
    if method not in multiprocessing.get_all_start_methods():
        method = "spawn"
    return "forkserver" if method == "fork" and "jax" in sys.modules else method


@contextlib.contextmanager
def environment(**values: str) -> Iterator[None]:
    """Set variables of the environment inside the block; put them back after it."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def usable_cpus() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1
