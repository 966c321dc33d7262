"""JASPER tables in one HDF5 file: read, map where the bytes lie plain, convert from ``.pt``.

    dataset.h5  embeddings/{questions,sources,keywords,centroids}   pair_data/{index,cluster_id,relevance}
                pair_data/keyword_ids/<i>                           negatives/{hardnegatives,tiers}
                steering/{centroid,keyword_weighted,residual,distances}    splits/{train,val,test}

No handle outlives a call, so nothing is shared by accident between processes.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from lading.errors import MissingFileError, SourceError
from lading.runtime.files import named_aside
from lading.source.jasper.layout import HDF5_FILE, KEYWORDS_HDF5, SPLITS, TABLES, Table, split_table
from lading.source.jasper.pt import PtStorage, read_only


class Hdf5Storage:
    """The tables of one ``dataset.h5``.

    Args:
        directory: Where the file lies.
        mapped: Map tables (shared, read-only); only tables written without compression can be.
    """

    format = "hdf5"

    def __init__(self, directory: Path, mapped: bool = False) -> None:
        self.directory, self.mapped = directory, mapped
        self.path = directory / HDF5_FILE

    def label(self, table: Table) -> str:
        """Return the name errors use for a table."""
        return f"{HDF5_FILE}/{table.hdf5}"

    def require(self, table: Table) -> None:
        """Refuse a file that lacks this table."""
        with self._open() as file:
            self._dataset(file, table.hdf5)

    def read(self, table: Table) -> Tensor:
        """Return one table."""
        with self._open() as file:
            dataset = self._dataset(file, table.hdf5)
            if self.mapped and dataset.size:
                return self._map(dataset)
            try:
                return torch.from_numpy(np.ascontiguousarray(dataset[()]))
            except (OSError, TypeError) as error:
                raise SourceError(
                    f"{self.label(table)} cannot be read: {error} ({self.path}). Convert it again."
                ) from error

    def require_keyword_ids(self) -> None:
        """Refuse a file that lacks the keyword ids."""
        with self._open() as file:
            self._dataset(file, KEYWORDS_HDF5)

    def keyword_ids(self) -> list[list[int]]:
        """Return the keyword ids of every pair; one small dataset each, so read only when asked for."""
        with self._open() as file:
            group = self._dataset(file, KEYWORDS_HDF5)
            return [_small(group, str(i)).tolist() for i in range(len(group))]

    def files(self) -> list[Path]:
        """Return the files behind the tables, for a fingerprint."""
        return [self.path]

    def _open(self) -> h5py.File:
        try:
            return h5py.File(self.path, "r")
        except OSError as error:
            raise SourceError(
                f"{HDF5_FILE} cannot be read, it is truncated or no HDF5: {error} ({self.path})."
            ) from error

    def _dataset(self, file: h5py.File, name: str) -> h5py.Dataset:
        if name not in file:
            raise MissingFileError(f"Required tensor file not found: {self.path}/{name}. Convert the dataset again.")
        return file[name]

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
    with h5py.File(directory / HDF5_FILE, "r") as file:
        found = [file[table.hdf5] for table in TABLES if table.hdf5 in file]
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


def _small(group: h5py.Group, name: str) -> np.ndarray:
    """Read one small dataset through the low-level door: a third of the time of ``group[name][()]``."""
    try:
        dataset = h5py.h5d.open(group.id, name.encode())
    except KeyError as error:
        raise MissingFileError(f"Required tensor file not found: {group.file.filename}{group.name}/{name}.") from error
    values = np.empty(dataset.shape, dtype=np.int64)
    if values.size:
        dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return values
