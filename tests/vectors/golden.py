"""The golden runs, as any engine reads them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lading.ledger.compact import compact

GOLDEN = Path(__file__).parents[1] / "ledger" / "golden" / "v3"


def compacted(name: str, folder: Path) -> Path:
    """Return a copy of a golden run whose dead ranks are closed, however new its files are in this clone."""
    path = shutil.copytree(GOLDEN / name, folder / "run")
    for file in path.rglob("*"):
        os.utime(file, (1e9, 1e9))  # ranks of another machine that wrote lately would be taken for alive
    compact(path)
    return path
