"""Paths as users give them: Lading reads and writes files, and refuses addresses in one place.

``Path("s3://bucket/run")`` is a local folder called ``s3:``, and everything in it seems to work.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from lading.errors import ConfigError

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # of ``://`` a Path keeps one slash


def local_path(given: str | os.PathLike[str]) -> Path:
    """Return a path of this machine; refuse an address (``s3://bucket/run``).

    >>> local_path("runs/7").name
    '7'
    """
    if _ADDRESS.match(os.fspath(given)):
        raise ConfigError(
            f"{os.fspath(given)!r} is an address: expected a path of this machine's file system. Mount what it names, "
            "or work in a local folder: `lading fetch` and `lading publish` copy runs, stores and checkpoints."
        )
    return Path(given)
