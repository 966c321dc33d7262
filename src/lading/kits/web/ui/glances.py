"""The runs of a site, each at a glance: what was read once is read again only where files have changed.

    first(40)     at once: the newest runs as they are, of all others the name and what is known already
    every()       all of them, as they are

Nothing is written: what is known is forgotten with the process.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lading.ledger.run_folder import RunFolder
from lading.report.folder import glance_at

_CURVE_POINTS = 48
_UNREAD: dict[str, Any] = {
    **dict.fromkeys(("state", "steps", "loss", "digest", "attempts", "datasets", "began", "wrote", "problem")),
    "config": {},
    "curve": [],
}


class Glances:
    """Some runs at a glance."""

    def __init__(self, runs: Mapping[str, Path]) -> None:
        self._runs = dict(runs)
        self._known: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def every(self) -> list[dict[str, Any]]:
        """Return every run as it is now."""
        return [{"run": name, **self._read(name, version_of(path))} for name, path in self._runs.items()]

    def first(self, most: int) -> list[dict[str, Any]]:
        """Return every run, the one that was written to last first; of those after so many only what is known.

        A run that is not known has no ``state``.
        """
        stamps = {name: stamp(path) for name, path in self._runs.items()}
        newest = sorted(stamps, key=lambda name: -stamps[name][1])
        rows = []
        for place, name in enumerate(newest):
            version = stamps[name][0]
            found = self._read(name, version) if place < most else self._fresh(name, version) or _UNREAD
            rows.append({"run": name, **found})
        return rows

    def _read(self, name: str, version: str) -> dict[str, Any]:
        with self._lock:  # who asks for the same run meanwhile waits, and nothing is read twice
            found = self._fresh(name, version)
            if found is None:
                found = glance_at(self._runs[name], _CURVE_POINTS)
                self._known[name] = version, found
        return found

    def _fresh(self, name: str, version: str) -> dict[str, Any] | None:
        """Return what is known of a run that has not changed; a process may die without a word, so none that runs."""
        known = self._known.get(name)
        return known[1] if known is not None and known[0] == version and known[1]["state"] != "running" else None


def version_of(path: Path) -> str:
    """Return what changes whenever a run is written to: sizes and times of the files that grow."""
    return stamp(path)[0]


def stamp(path: Path) -> tuple[str, int]:
    """Return the version of a run, and when it was last written to, in nanoseconds."""
    folder = RunFolder(path)
    files = [folder.head]
    for attempt in folder.attempts():
        for rank in folder.ranks(attempt):
            files += [rank.begun, rank.tail, rank.manifest]
    text, newest = [], 0
    for file in files:
        try:
            found = file.stat()
            text.append(f"{found.st_size} {found.st_mtime_ns}")
            newest = max(newest, found.st_mtime_ns)
        except OSError:
            text.append("-")
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16], newest
