"""The folders of the runs below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lading.errors import ConfigError
from lading.ledger.run_folder import RunFolder
from lading.runtime.paths import local_path

_DEEPEST = 4


def runs_in(folder: str | os.PathLike[str], deepest: int = _DEEPEST) -> list[Path]:
    """Return the folders of all runs below a folder, in order of their names; the folder may itself be one.

    Args:
        folder: Where to look. Links are not followed, and nothing inside a run is looked at.
        deepest: How many folders deep a run may lie.
    """
    root = local_path(folder)
    if not root.is_dir():
        raise ConfigError(f"{root} is no folder: expected a run, or a folder with runs in it. Check the path.")
    return sorted(_found(root, deepest))


def _found(folder: Path, deepest: int) -> Iterator[Path]:
    if RunFolder(folder).description.is_file():
        yield folder
        return
    if not deepest:
        return
    try:
        inside = [entry for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in inside:
        if not entry.name.startswith("."):
            yield from _found(Path(entry.path), deepest - 1)
