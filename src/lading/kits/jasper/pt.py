"""JASPER tables as ``torch.save`` wrote them: read into memory, or mapped in place.

    question_embs.pt = zip archive  ┌ data.pkl    what the tensor is (read by torch, weights only)
                                    └ data/0      its bytes, stored as they are ──▶ mmap(shared, read-only)

Everything is read with ``weights_only=True``, the list of lists too: a data
directory must never be able to run code.
"""

from __future__ import annotations

import pickle
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lading.errors import MissingFileError, SourceError
from lading.kits.jasper.layout import KEYWORDS_FILE, JasperTable


class PtStorage:
    """The ``.pt`` files of one directory.

    Args:
        mapped: Map tensors (shared, read-only) instead of reading them into memory.
    """

    format = "pt"

    def __init__(self, directory: Path, mapped: bool = False) -> None:
        self.directory, self.mapped = directory, mapped

    def label(self, table: JasperTable) -> str:
        """Return the name errors use for a table."""
        return table.file

    def require(self, table: JasperTable) -> None:
        """Refuse a directory that lacks this table."""
        self._existing(table.file)

    def read(self, table: JasperTable) -> Tensor:
        path = self._existing(table.file)
        tensor = load(path, mapped=self.mapped)
        if not isinstance(tensor, Tensor):
            raise SourceError(
                f"{table.file} holds a {type(tensor).__name__}, expected a tensor. Save it with torch.save."
            )
        mappable = self.mapped and str(tensor.dtype) == f"torch.{table.dtype}"  # another type is refused by its reader
        if not mappable:
            return tensor.detach()
        try:
            return remap(path, tensor)
        except (ValueError, OSError, struct.error, zipfile.BadZipFile) as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"{table.file} cannot be mapped: {error} ({path}). Write it again.") from error

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
        if isinstance(error, pickle.UnpicklingError) and _was_saved(path):
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
    """True where torch (or any pickle) wrote the file, as opposed to mere noise."""
    with path.open("rb") as file:
        return zipfile.is_zipfile(path) or file.read(1) == b"\x80"


def remap(path: Path, tensor: Tensor) -> Tensor:
    """Return the same tensor on a shared, read-only mapping of its file; torch itself maps privately.

    Writing into such a tensor is a segmentation fault, so datasets return copies of its rows only.
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
    try:
        with zipfile.ZipFile(path) as archive:
            records = [info for info in archive.infolist() if "/data/" in info.filename]
    except Exception as error:  # a damaged list of contents, which torch does not read, raises what it likes
        raise SourceError(f"{path.name} cannot be mapped: {error} ({path}). Write it again.") from error
    if len(records) != 1 or records[0].compress_type != zipfile.ZIP_STORED:
        raise SourceError(f"{path.name} holds {len(records)} tensors, expected 1 stored as it is; it cannot be mapped.")
    with path.open("rb") as file:  # the local header has its own name and padding lengths
        file.seek(records[0].header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
    found: int = records[0].header_offset + 30 + name + extra
    return found
