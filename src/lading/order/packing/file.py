"""Packing indices on disk: made once, named by what made them, memory-mapped ever after.

    <directory>/packing-<fingerprint>/
    ├── packing.json       rules, numbers of documents, rows and pieces, fingerprint
    └── row_offsets.npy · document.npy · start.npy · size.npy

A directory is written aside and renamed, so an index is there completely or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PackingError
from lading.order.packing.index import PACKING_VERSION, PackingIndex, build_index, index_fingerprint, lengths_hash
from lading.order.packing.rules import PackingRules

COLUMNS = ("row_offsets", "document", "start", "size")


def save_index(index: PackingIndex, directory: str | Path) -> PackingIndex:
    """Write an index below a directory and return it memory-mapped, its ``path`` set."""
    target = Path(directory) / f"packing-{index.fingerprint}"
    if (target / "packing.json").exists():
        return open_index(target)
    aside = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True, exist_ok=True)
        for name in COLUMNS:
            np.save(aside / f"{name}.npy", getattr(index, name), allow_pickle=False)
        (aside / "packing.json").write_text(json.dumps(_description(index), indent=1) + "\n")
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise PackingError(
            f"the packing index cannot be saved at {target} ({error}). Pass index_dir= with a directory that can be "
            "written to."
        ) from error
    try:
        aside.rename(target)
    except OSError:  # another process made the same index first
        shutil.rmtree(aside)
    return open_index(target)


def open_index(path: str | Path) -> PackingIndex:
    """Open a saved index; its columns stay on disk until they are read."""
    path = Path(path)
    found = _read_description(path)
    columns = {name: _mapped(path / f"{name}.npy") for name in COLUMNS}
    expected = {"row_offsets": found["num_rows"] + 1} | dict.fromkeys(COLUMNS[1:], found["num_pieces"])
    for name, column in columns.items():
        if column.shape != (expected[name],):
            raise PackingError(
                f"{path / name}.npy holds {column.shape} entries, expected {expected[name]}. "
                "Delete the directory and make the index again."
            )
    rules = PackingRules(**found["rules"])
    index = PackingIndex(rules, found["num_documents"], found["lengths_hash"], **columns, path=str(path.absolute()))
    if index.fingerprint != found["fingerprint"]:
        raise PackingError(
            f"{path / 'packing.json'} says fingerprint {found['fingerprint']}, but its rules give {index.fingerprint}. "
            "It was changed by hand or by another version; make the index again."
        )
    return index


def index_for(lengths: NDArray[Any], rules: PackingRules, directory: str | Path | None) -> PackingIndex:
    """Return the index of these lengths and rules: the one saved below a directory, else a new one, saved there."""
    if directory is None:
        return build_index(lengths, rules)
    name = index_fingerprint(rules, len(lengths), lengths_hash(lengths))
    saved = Path(directory) / f"packing-{name}"
    return open_index(saved) if saved.exists() else save_index(build_index(lengths, rules), directory)


def _description(index: PackingIndex) -> dict[str, Any]:
    return {
        "packing_version": PACKING_VERSION,
        "fingerprint": index.fingerprint,
        "rules": dataclasses.asdict(index.rules),
        "num_documents": index.num_documents,
        "num_rows": len(index),
        "num_pieces": index.num_pieces,
        "lengths_hash": index.lengths_hash,
    }


def _read_description(path: Path) -> dict[str, Any]:
    file = path / "packing.json"
    if not file.exists():
        raise PackingError(f"no packing index at {path}: {file} is missing. Make one with lading tokens pack.")
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise PackingError(f"{file} is no JSON ({error}). Delete the directory and make the index again.") from error
    if found.get("packing_version") != PACKING_VERSION:
        raise PackingError(
            f"{file} has packing_version {found.get('packing_version')}, expected {PACKING_VERSION}. "
            "Make the index again with this version of Lading."
        )
    return found


def _mapped(file: Path) -> NDArray[Any]:
    try:
        # Plain arrays over the map: np.memmap slices cost microseconds each.
        return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        if file.exists() and file.stat().st_size and "empty file" in str(error):
            found: NDArray[Any] = np.load(file, allow_pickle=False)
            return found
        raise PackingError(
            f"{file} cannot be read ({error}). It is missing or cut off; delete the directory and make the index again."
        ) from error
