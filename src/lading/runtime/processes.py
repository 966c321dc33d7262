"""Whether another process of this machine runs."""

from __future__ import annotations

import os
from pathlib import Path


def process_identity(pid: int) -> tuple[int, int]:
    """Return a process's id and start time: together they are never used again. 0 where it ended or is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (pid, 0) if fields[0] in "ZX" else (pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return pid, 0


def is_running(pid: int, started: int = 0) -> bool:
    """Say whether a process runs; with its start time, whether it is the same one.

    Args:
        pid: Its number.
        started: When it started, as ``process_identity`` says; 0: whichever has the number.
    """
    found = process_identity(pid)[1]
    if found or Path("/proc/self/stat").exists():
        return found != 0 and started in (0, found)
    try:
        os.kill(pid, 0)  # no /proc: only the number is known
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
