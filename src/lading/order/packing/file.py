"""Packing indices on disk: made once, named by what made them, memory-mapped ever after.

    <directory>/packing-<fingerprint>/
    ├── packing.json       rules, numbers of documents, rows and pieces, fingerprint
    └── row_offsets.npy · document.npy · start.npy · size.npy

A directory is built aside and renamed, so an index is there completely or not at all.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PackingError
from lading.order.packing.index import PACKING_VERSION, PackingIndex, build_index, index_fingerprint, lengths_hash
from lading.order.packing.rules import PackingRules
from lading.runtime.fields import Fields, FieldTable, Origin, given, record_of, shown
from lading.runtime.files import built_aside, json_bytes
from lading.runtime.paths import local_path

COLUMNS = ("row_offsets", "document", "start", "size")
NUMBERS = (np.dtype(np.int32), np.dtype(np.int64))
MOST = 1 << 48


def save_index(index: PackingIndex, directory: str | Path) -> PackingIndex:
    """Write an index below a directory and return it memory-mapped, its ``path`` set."""
    target = local_path(directory) / f"packing-{index.fingerprint}"
    if (target / "packing.json").exists():
        return open_index(target)
    try:
        with built_aside(target) as aside:
            for name in COLUMNS:
                np.save(aside / f"{name}.npy", getattr(index, name), allow_pickle=False)
            (aside / "packing.json").write_bytes(json_bytes(_description(index)))
    except FileExistsError:
        pass  # another process made the same index first
    except OSError as error:
        raise PackingError(
            f"the packing index cannot be saved at {target} ({error}). Pass index_dir= with a directory that can be "
            "written to."
        ) from error
    return open_index(target)


def open_index(path: str | Path) -> PackingIndex:
    """Open a saved index; its columns stay on disk until they are read."""
    path = local_path(path)
    found = _read_description(path)
    pieces = found["num_pieces"]
    columns = {
        "row_offsets": _mapped(path / "row_offsets.npy", found["num_rows"] + 1, (np.dtype(np.int64),)),
        "document": _mapped(path / "document.npy", pieces, NUMBERS),
        "start": _mapped(path / "start.npy", pieces, NUMBERS),
        "size": _mapped(path / "size.npy", pieces, (np.dtype(np.int32),)),
    }
    rules, documents, hashed = (found[name] for name in ("rules", "num_documents", "lengths_hash"))
    index = PackingIndex(rules, documents, hashed, **columns, path=str(path.absolute()))
    if index.fingerprint != found["fingerprint"]:
        raise PackingError(
            f"{path / 'packing.json'} says fingerprint {shown(found['fingerprint'])}, but its rules give "
            f"{index.fingerprint}. It was changed by hand or by another version; make the index again."
        )
    return index


def index_for(lengths: NDArray[Any], rules: PackingRules, directory: str | Path | None) -> PackingIndex:
    """Return the index of these lengths and rules: the one saved below a directory, else a new one, saved there."""
    if directory is None:
        return build_index(lengths, rules)
    name = index_fingerprint(rules, len(lengths), lengths_hash(lengths))
    saved = local_path(directory) / f"packing-{name}"
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
    origin = Origin(file, PackingError, "Delete the directory and make the index again.")
    found = origin.record(origin.read())
    if found.value("packing_version") != PACKING_VERSION:
        found.refuse("packing_version", str(PACKING_VERSION))
    return found.each(_FIELDS, "packing_version")


_NUMBER = partial(Fields.integer, low=0, high=MOST)
_RULES: FieldTable = {
    "row_length": Fields.integer,
    "algorithm": Fields.text,
    "overflow": Fields.text,
    "open_rows": given(Fields.integer),
    "append_eod": Fields.flag,
    "sort_window": Fields.integer,
}
_FIELDS: FieldTable = {
    "fingerprint": Fields.text,
    "rules": record_of(PackingRules, _RULES),
    "num_documents": _NUMBER,
    "num_rows": _NUMBER,
    "num_pieces": _NUMBER,
    "lengths_hash": partial(Fields.hexadecimal, digits=16),
}


def _mapped(file: Path, length: int, dtypes: tuple[np.dtype[Any], ...]) -> NDArray[Any]:
    """Map a column, of this length, one of these types, and in step with memory: compiled code relies on all three."""
    origin = Origin(file, PackingError, "It is cut off or of another index; delete the directory and make it again.")
    if not file.is_file():
        origin.refuse("", f"{length} numbers", "no file")
    try:
        shape, dtype, start = _header(file)
        fits = shape == (length,) and dtype in dtypes and start % dtype.itemsize == 0
        # Plain arrays over the map: np.memmap slices cost microseconds each. Of no numbers there is nothing to map.
        column = np.asarray(np.memmap(file, dtype, "r", start, shape)) if fits and length else np.zeros(0, np.int32)
    except Exception as error:  # NumPy reads a header with Python's own parser, which raises what it likes
        origin.refuse("", f"{length} numbers", f"what cannot be read ({error})")
    if not fits:
        origin.refuse(
            "", f"{length} numbers of {' or '.join(map(str, dtypes))}", f"{shape} of {dtype} from byte {start} on"
        )
    return column


def _header(file: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return shape, type and where the numbers of an ``.npy`` file start."""
    with open(file, "rb") as stream:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(stream)
        return shape, dtype, stream.tell()
