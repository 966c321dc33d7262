"""Write a JASPER directory all or nothing.

.corpus.building-4711/  every file  ──rename──▶  corpus/       a crash leaves no half-written directory
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
from lading.source.jasper.layout import CONFIG_FILE, HDF5_FILE, KEYWORDS_FILE
from lading.source.jasper.storage import convert_to_hdf5

MARK = ".building-"


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
        path: The directory to make.
        config: Content of ``config.json``.
        tables: Tensors by file name without ``.pt``; splits too.
        keyword_ids: Keywords of each pair.
        overwrite: Replace a directory that is there.
        finish: Done to the files before they get their name.
    """
    refuse_existing(path, overwrite)
    with _aside(path) as aside:
        for name, tensor in tables.items():
            torch.save(tensor.contiguous(), aside / f"{name}.pt")
        torch.save(keyword_ids, aside / KEYWORDS_FILE)
        (aside / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        finish(aside)
        if path.exists():
            _replace(path, aside)
        else:
            aside.rename(path)


def rewrite_directory(path: Path, config: Mapping[str, Any], tables: Mapping[str, Tensor]) -> None:
    """Replace some tables and the config of a directory; all else stays, and a reader sees all or nothing of it.

    Args:
        path: A JASPER directory.
        config: Its new ``config.json``.
        tables: Its new tables, by file name without ``.pt``.
    """
    changed = {CONFIG_FILE, HDF5_FILE, *(f"{name}.pt" for name in tables)}
    with _aside(path) as aside:
        for file in path.iterdir():
            if file.is_file() and file.name not in changed:
                _same_file(file, aside / file.name)
        for name, tensor in tables.items():
            torch.save(tensor.contiguous(), aside / f"{name}.pt")
        (aside / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        if (path / HDF5_FILE).is_file():
            convert_to_hdf5(aside)
        _replace(path, aside)


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


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f".{path.name}{MARK}*"):
        if not _runs(left.name.rpartition("-")[2]):  # what a killed build left behind
            shutil.rmtree(left, ignore_errors=True)
    aside = path.parent / f".{path.name}{MARK}{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    return True


def _replace(path: Path, aside: Path) -> None:
    old = path.parent / f".{path.name}.replaced-{os.getpid()}"
    path.rename(old)
    aside.rename(path)
    shutil.rmtree(old)
