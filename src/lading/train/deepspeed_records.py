"""One JSON line an update, in a file that agrees with the run's history.

update     0 1 2 3 4 5 | 6 7 x           killed after a checkpoint at 6
on disk    0 1 2 3 4 5 | 6 7             written at intervals, and always before a checkpoint
resumed    0 1 2 3 4 5 | 6 7 8 ...       what the restart undid is removed; the ledger keeps it
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lading.ledger.durable import write_aside

STEP = "train/step"


class Records:
    """Collect records and append them to a file.

    Args:
        path: The file; one JSON object a line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[Mapping[str, Any]] = []

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a record. Tensors are read when it is written, so that nobody waits for a device now."""
        self._waiting.append(record)

    def flush(self) -> None:
        """Append everything that waits."""
        if not self._waiting:
            return
        lines = "".join(json.dumps(_plain(record), allow_nan=False) + "\n" for record in self._waiting)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(lines)
        self._waiting.clear()


def roll_back(path: Path, update: int) -> None:
    """Remove the records of an update and of those after it, and what a crash left half written."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    kept = [line for line in lines if 0 <= _update_of(line) < update]
    if len(kept) < len(lines):
        write_aside(path, "".join(line + "\n" for line in kept).encode())


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the records of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _update_of(line: str) -> int:
    try:
        return int(json.loads(line)[STEP])
    except (ValueError, KeyError, TypeError):
        return -1


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it; what is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
