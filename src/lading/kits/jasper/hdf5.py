"""JASPER tables in one HDF5 file: read, map where the bytes lie plain, convert from ``.pt``.

    dataset.h5  embeddings/{questions,sources,keywords,centroids}   pair_data/{index,cluster_id,relevance}
                pair_data/keyword_ids/<i>                           negatives/{hardnegatives,tiers}
                steering/{centroid,keyword_weighted,residual,distances}    splits/{train,val,test}

No handle outlives a call, so nothing is shared by accident between processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from lading.errors import LadingError, MissingFileError, SourceError
from lading.kits.jasper.layout import HDF5_FILE, KEYWORDS_HDF5, SPLITS, TABLES, JasperTable, split_table
from lading.kits.jasper.pt import PtStorage, read_only
from lading.runtime.files import named_aside

_MOST_COMPRESSED = 1100  # gzip makes zeros at most 1 032 times smaller
_MOST_KEYWORDS = 1 << 20


class Hdf5Storage:
    """The tables of one ``dataset.h5``.

    Args:
        mapped: Map tables (shared, read-only); only tables written without compression can be.
    """

    format = "hdf5"

    def __init__(self, directory: Path, mapped: bool = False) -> None:
        self.directory, self.mapped = directory, mapped
        self.path = directory / HDF5_FILE

    def label(self, table: JasperTable) -> str:
        return f"{HDF5_FILE}/{table.hdf5}"

    def require(self, table: JasperTable) -> None:
        with _opened(self.path, table.hdf5) as file:
            _dataset(file, table.hdf5)

    def read(self, table: JasperTable) -> Tensor:
        with _opened(self.path, table.hdf5) as file:
            dataset = _dataset(file, table.hdf5)
            if self.mapped and dataset.size:
                return self._map(dataset)
            return torch.from_numpy(np.ascontiguousarray(dataset[()]))

    def require_keyword_ids(self) -> None:
        with _opened(self.path, KEYWORDS_HDF5) as file:
            _group(file, KEYWORDS_HDF5)

    def keyword_ids(self) -> list[list[int]]:
        """Return the keyword ids of every pair; one small dataset each, so read only when asked for."""
        with _opened(self.path, KEYWORDS_HDF5) as file:
            group = _group(file, KEYWORDS_HDF5)
            return [_small(group, str(i)).tolist() for i in range(len(group))]

    def files(self) -> list[Path]:
        return [self.path]

    def _map(self, dataset: h5py.Dataset) -> Tensor:
        offset = dataset.id.get_offset()
        if offset is None:
            raise SourceError(
                f"{HDF5_FILE}{dataset.name} is compressed, so it cannot be mapped. Use storage_format='pt', "
                "use_mmap=False, or convert_pt_to_hdf5(dataset_dir, compression=None)."
            )
        return read_only(np.memmap(self.path, dataset.dtype, mode="r", offset=offset, shape=dataset.shape))


def mappable(directory: Path) -> bool:
    """True where every table of the HDF5 file lies plain, so that it can be mapped."""
    with _opened(directory / HDF5_FILE, "its tables") as file:
        found = [_dataset(file, table.hdf5) for table in TABLES if table.hdf5 in file]
        return all(dataset.size == 0 or dataset.id.get_offset() is not None for dataset in found)


def convert(directory: Path, compression: str | None = "gzip") -> Path:
    """Write the ``.pt`` tables of a directory into its ``dataset.h5``; a crash leaves no half-written file."""
    storage, path = PtStorage(directory), directory / HDF5_FILE
    with named_aside(path) as aside, h5py.File(aside, "w") as file:
        for table in (*TABLES, *map(split_table, SPLITS)):
            data = storage.read(table).numpy()
            file.create_dataset(table.hdf5, data=data, compression=compression if data.size else None)
        group = file.create_group(KEYWORDS_HDF5)
        for i, ids in enumerate(storage.keyword_ids()):
            group.create_dataset(str(i), data=np.asarray(ids, dtype=np.int32))
    return path


@contextlib.contextmanager
def _opened(path: Path, name: str) -> Iterator[h5py.File]:
    """Open the file; whatever HDF5 says of damaged bytes becomes an error that names file and table."""
    try:
        file = h5py.File(path, "r")
    except Exception as error:
        raise SourceError(f"{HDF5_FILE} cannot be read, it is truncated or no HDF5: {error} ({path}).") from error
    try:
        with file:
            yield file
    except LadingError:
        raise
    except Exception as error:  # OSError, KeyError, RuntimeError, TypeError, ValueError, MemoryError: as HDF5 likes
        raise SourceError(f"{HDF5_FILE}/{name} cannot be read: {error} ({path}). Convert it again.") from error


def _own(file: h5py.File, name: str) -> Any:
    """Return what lies under a name in this very file: links to other files are not followed."""
    place: Any = file
    for part in name.split("/"):
        link = place.get(part, getlink=True) if isinstance(place, h5py.Group) else None
        if link is None:
            raise MissingFileError(
                f"Required tensor file not found: {file.filename}/{name}. Convert the dataset again."
            )
        if not isinstance(link, h5py.HardLink):
            raise SourceError(f"{HDF5_FILE}/{name} is a link ({file.filename}); refused, it may lead to another file.")
        place = place[part]
    return place


def _dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """Return a table, refusing what is none, what lies in other files and what is larger than its file can hold."""
    found = _own(file, name)
    if not isinstance(found, h5py.Dataset):
        raise SourceError(f"{HDF5_FILE}/{name} is a {type(found).__name__}, expected a dataset. Convert it again.")
    if found.external or found.is_virtual:
        raise SourceError(f"{HDF5_FILE}/{name} lies in other files; refused. Copy its numbers into {HDF5_FILE}.")
    size, stored = found.size or 0, os.path.getsize(file.filename)
    if found.dtype.kind not in "iuf" or size * found.dtype.itemsize > stored * _MOST_COMPRESSED:
        raise SourceError(
            f"{HDF5_FILE}/{name} holds {size} values of {found.dtype}, expected numbers that fit a file of {stored} "
            "bytes. It is damaged; convert it again."
        )
    return found


def _group(file: h5py.File, name: str) -> h5py.Group:
    found = _own(file, name)
    if not isinstance(found, h5py.Group):
        raise SourceError(f"{HDF5_FILE}/{name} is a {type(found).__name__}, expected a group. Convert it again.")
    return found


def _small(group: h5py.Group, name: str) -> np.ndarray:
    """Read one small dataset through the low-level door: a third of the time of ``group[name][()]``."""
    try:
        linked = group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD
        dataset = h5py.h5d.open(group.id, name.encode()) if not linked else None
    except KeyError as error:
        raise MissingFileError(f"Required tensor file not found: {group.file.filename}{group.name}/{name}.") from error
    if dataset is None or _is_elsewhere(dataset) or len(dataset.shape) != 1 or dataset.shape[0] > _MOST_KEYWORDS:
        raise SourceError(f"{HDF5_FILE}{group.name}/{name} is no short list in this very file. Convert it again.")
    values = np.empty(dataset.shape, dtype=np.int64)
    if values.size:
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return values


def _is_elsewhere(dataset: h5py.h5d.DatasetID) -> bool:
    """Say whether a dataset's numbers lie in other files."""
    made = dataset.get_create_plist()
    return bool(made.get_external_count()) or made.get_layout() == h5py.h5d.VIRTUAL
