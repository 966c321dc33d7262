"""Write a JASPER directory all or nothing.

every file ──▶ beside corpus/ ──▶ synced ──▶ swapped with corpus/       a crash leaves the old one or the new one
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lading.errors import SourceError
from lading.kits.jasper.layout import CONFIG_FILE, HDF5_FILE, KEYWORDS_FILE
from lading.kits.jasper.storage import convert_to_hdf5
from lading.runtime.files import built_aside


def write_directory(
    path: Path,
    config: Mapping[str, Any],
    tables: Mapping[str, Tensor],
    keyword_ids: list[list[int]],
    *,
    overwrite: bool = False,
    finish: Callable[[Path], None] = lambda aside: None,
) -> None:
    """Write everything aside, then give it its name.

    Args:
        tables: Tensors by file name without ``.pt``; splits too.
        finish: Done to the files before they get their name.
    """
    refuse_existing(path, overwrite)
    with _refused(path), built_aside(path, replace=overwrite) as aside:
        for name, tensor in tables.items():
            torch.save(tensor.contiguous(), aside / f"{name}.pt")
        torch.save(keyword_ids, aside / KEYWORDS_FILE)
        (aside / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        finish(aside)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:  # made by another process meanwhile
        raise SourceError(f"{path} exists already. Pass overwrite=True, or choose another.") from error


def rewrite_directory(path: Path, config: Mapping[str, Any], tables: Mapping[str, Tensor]) -> None:
    """Replace some tables and the config of a directory; all else stays, and a reader sees all or nothing of it.

    Args:
        tables: Its new tables, by file name without ``.pt``.
    """
    changed = {CONFIG_FILE, HDF5_FILE, *(f"{name}.pt" for name in tables)}
    with built_aside(path, replace=True) as aside:
        for file in path.iterdir():
            if file.is_file() and file.name not in changed:
                _same_file(file, aside / file.name)
        for name, tensor in tables.items():
            torch.save(tensor.contiguous(), aside / f"{name}.pt")
        (aside / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if (path / HDF5_FILE).is_file():
            convert_to_hdf5(aside)


def _same_file(file: Path, other: Path) -> None:
    """Give a file a second name; copy it where the file system has no hard links."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Refuse to write over what is there; with ``overwrite``, only over a JASPER directory."""
    if path.exists() and not (overwrite and (path / CONFIG_FILE).is_file()):
        way_out = (
            "It is no JASPER directory; choose another." if overwrite else "Pass overwrite=True, or choose another."
        )
        raise SourceError(f"{path} exists already. {way_out}")
