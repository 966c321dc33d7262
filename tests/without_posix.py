"""What Windows and some network file systems do not have, taken away from this process; imported before Lading.

This is the only way in which Lading is tested for them.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

MISSING = {
    os: ("register_at_fork", "fork", "link", "pread", "pwrite", "memfd_create", "sched_getaffinity", "getuid",
         "geteuid", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"),
    signal: ("SIGKILL", "SIGUSR1", "SIGALRM"),
    socket: ("send_fds", "recv_fds"),
}  # fmt: skip


def take_away() -> None:
    """Remove the names, and have folders not be opened."""
    for name in ("fcntl", "resource", "pwd", "grp"):
        sys.modules[name] = None  # type: ignore[assignment]  # importing it now fails
    for module, names in MISSING.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    opened = os.open

    def open_no_folder(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(os.fsdecode(path)).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    os.open = open_no_folder
