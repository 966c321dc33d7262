"""Which storage a JASPER directory is read from: its ``.pt`` files or its HDF5 file.

auto ──▶ dataset.h5 where it is (and h5py), else *.pt

JASPER tables as ``torch.save`` wrote them: read into memory, or mapped where they lie.

    question_embs.pt = zip archive  ┌ data.pkl    what the tensor is (read by torch, weights only)
                                    └ data/0      its bytes, stored as they are ──▶ mmap(shared, read-only)

Everything is read with ``weights_only=True``, the list of lists too: a data
directory must never be able to run code.
"""

from __future__ import annotations

import struct
import warnings
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from lading.errors import MissingFileError, SourceError
from lading.source.jasper.layout import HDF5_FILE, KEYWORDS_FILE, SPLITS, TABLES, Table, split_table


class PtStorage:
    """The ``.pt`` files of one directory.

    Args:
        directory: Where the files lie.
        mapped: Map tensors (shared, read-only) instead of reading them into memory.
    """

    format = "pt"

    def __init__(self, directory: Path, mapped: bool = False) -> None:
        self.directory, self.mapped = directory, mapped

    def label(self, table: Table) -> str:
        """Return the name errors use for a table."""
        return table.file

    def require(self, table: Table) -> None:
        """Refuse a directory that lacks this table."""
        self._existing(table.file)

    def read(self, table: Table) -> Tensor:
        """Return one table."""
        path = self._existing(table.file)
        tensor = load(path, mapped=self.mapped)
        if not isinstance(tensor, Tensor):
            raise SourceError(
                f"{table.file} holds a {type(tensor).__name__}, expected a tensor. Save it with torch.save."
            )
        mappable = self.mapped and str(tensor.dtype) == f"torch.{table.dtype}"  # another type is refused by its reader
        return remap(path, tensor) if mappable else tensor.detach()

    def require_keyword_ids(self) -> None:
        """Refuse a directory that lacks the keyword ids."""
        self._existing(KEYWORDS_FILE)

    def keyword_ids(self) -> Any:
        """Return the keyword ids of every pair: a list of lists."""
        return load(self._existing(KEYWORDS_FILE))

    def files(self) -> list[Path]:
        """Return the files behind the tables, for a fingerprint."""
        return sorted(self.directory.glob("*.pt"))

    def _existing(self, name: str) -> Path:
        path = self.directory / name
        if not path.is_file():
            raise MissingFileError(
                f"Required tensor file not found: {path}. Rebuild the dataset with 'lading jasper build'."
            )
        return path


def load(path: Path, *, mapped: bool = False) -> Any:
    """Load a file without ever running what is in it."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch raises RuntimeError, EOFError, UnpicklingError, OSError ... for bad files
        if type(error).__name__ == "UnpicklingError" and _was_saved(path):
            raise SourceError(
                f"{path.name} holds more than tensors, lists and numbers; refused, a data directory must not be able "
                f"to run code ({path}). Save plain tensors or lists with torch.save."
            ) from error
        reason = str(error).split(". ")[0] or type(error).__name__
        raise SourceError(
            f"{path.name} cannot be read, it is truncated or not written by torch.save: {reason} ({path}). "
            "Write it again."
        ) from error


def _was_saved(path: Path) -> bool:
    """True where torch (or somebody's pickle) wrote the file, as opposed to mere noise."""
    with path.open("rb") as file:
        return zipfile.is_zipfile(path) or file.read(1) == b"\x80"


def remap(path: Path, tensor: Tensor) -> Tensor:
    """Return the same tensor on a shared, read-only mapping of its file; torch itself maps privately.

    Writing into such a tensor is a segmentation fault, so datasets hand out copies of its rows only.
    """
    if tensor.numel() == 0:
        return tensor
    if not tensor.is_contiguous():
        raise SourceError(
            f"{path.name} is not contiguous, so it cannot be mapped. Save tensor.contiguous(), or use_mmap=False."
        )
    start = _data_offset(path) + int(tensor.storage_offset()) * tensor.element_size()
    dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    array: np.ndarray = np.memmap(path, dtype=dtype, mode="r", offset=start, shape=tuple(tensor.shape))
    return read_only(array)


def read_only(array: np.ndarray) -> Tensor:
    """Wrap a read-only array; torch warns about every one, and we know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _data_offset(path: Path) -> int:
    """Return where the bytes of the archive's only tensor begin."""
    with zipfile.ZipFile(path) as archive:
        records = [info for info in archive.infolist() if "/data/" in info.filename]
    if len(records) != 1 or records[0].compress_type != zipfile.ZIP_STORED:
        raise SourceError(f"{path.name} holds {len(records)} tensors, expected 1 stored as it is; it cannot be mapped.")
    with path.open("rb") as file:  # the local header has its own name and padding lengths
        file.seek(records[0].header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    found: int = records[0].header_offset + 30 + name + extra
    return found


LARGE_BYTES = 10 * 1024**3


class Storage(Protocol):
    """Where tables are read from; ``PtStorage`` and ``Hdf5Storage`` are the two there are."""

    format: str
    mapped: bool
    directory: Path

    def label(self, table: Table) -> str: ...
    def require(self, table: Table) -> None: ...
    def read(self, table: Table) -> Tensor: ...
    def require_keyword_ids(self) -> None: ...
    def keyword_ids(self) -> Any: ...
    def files(self) -> list[Path]: ...


def open_storage(directory: Path, storage_format: str, use_mmap: bool | None, config: dict[str, Any]) -> Storage:
    """Choose the storage, or say what is missing.

    Args:
        directory: The dataset directory.
        storage_format: "auto", "pt" or "hdf5".
        use_mmap: None maps directories that are (or say they are) above 10 GB.
        config: The directory's config.
    """
    chosen = detect_format(directory, storage_format)
    large = use_mmap is None and max(_stored_bytes(directory, chosen), _estimated_bytes(config)) > LARGE_BYTES
    if chosen == "pt":
        return PtStorage(directory, mapped=bool(use_mmap) or large)
    hdf5 = _hdf5()
    if use_mmap and storage_format == "auto" and not hdf5.mappable(directory) and _has_pt(directory):
        return PtStorage(directory, mapped=True)
    found: Storage = hdf5.Hdf5Storage(directory, mapped=bool(use_mmap) or (large and hdf5.mappable(directory)))
    return found


def detect_format(directory: Path, storage_format: str) -> str:
    """Return "pt" or "hdf5", whichever is asked for and there."""
    if storage_format not in ("auto", "pt", "hdf5"):
        raise SourceError(f"Invalid storage_format: {storage_format}. Must be 'auto', 'pt', or 'hdf5'")
    hdf5_file, has_pt = directory / HDF5_FILE, _has_pt(directory)
    if storage_format == "auto":
        if hdf5_file.is_file() and (not has_pt or _has_h5py()):
            return detect_format(directory, "hdf5")
        if has_pt:
            return "pt"
        raise SourceError(f"No dataset files found in {directory}. Expected either {HDF5_FILE} or *.pt files.")
    if storage_format == "pt":
        if not has_pt:
            raise SourceError(f"PT files not found in {directory}. Expected question_embs.pt and its siblings.")
        return "pt"
    if not _has_h5py():
        raise SourceError("HDF5 format requested but h5py is not installed. Install with: pip install h5py")
    if not hdf5_file.is_file():
        raise SourceError(f"HDF5 file not found: {hdf5_file}. JASPERSteeringDataset.convert_pt_to_hdf5 writes it.")
    return "hdf5"


def find_split(storage: Storage, split: str) -> Storage:
    """Return the storage that holds a split: an HDF5 file without it falls back to the ``*_idx.pt`` files."""
    table = split_table(split)
    holders: list[Storage] = [storage, PtStorage(storage.directory)]
    for holder in holders if split in SPLITS else []:
        if has_table(holder, table):
            return holder
    raise SourceError(f"Split file not found: {storage.directory / table.file}. Valid splits are: {', '.join(SPLITS)}")


def has_table(storage: Storage, table: Table) -> bool:
    """True where a storage holds a table."""
    try:
        storage.require(table)
    except FileNotFoundError:
        return False
    return True


def _hdf5() -> ModuleType:
    from lading.source.jasper import hdf5 as jasper_hdf5  # h5py is optional and only needed here

    return jasper_hdf5


def _has_h5py() -> bool:
    try:
        _hdf5()
    except ImportError:
        return False
    return True


def _has_pt(directory: Path) -> bool:
    return (directory / "question_embs.pt").is_file()


def _stored_bytes(directory: Path, storage_format: str) -> int:
    names = [HDF5_FILE] if storage_format == "hdf5" else [table.file for table in TABLES]
    return sum((directory / name).stat().st_size for name in names if (directory / name).is_file())


def _estimated_bytes(config: dict[str, Any]) -> int:
    """Return what the config promises: the original's rule, about 15 tables of P x D float32."""
    dim, pairs = config.get("embedding_dim"), config.get("n_pairs")
    return dim * pairs * 4 * 15 if isinstance(dim, int) and isinstance(pairs, int) else 0
