"""Which storage a JASPER directory is read from: its ``.pt`` files or its HDF5 file.

auto ──▶ dataset.h5 where it is (and h5py), else *.pt
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from lading.errors import MissingExtraError, SourceError
from lading.kits.jasper.layout import HDF5_FILE, SPLITS, TABLES, JasperTable, split_table
from lading.kits.jasper.pt import PtStorage

if TYPE_CHECKING:
    from lading.kits.jasper.hdf5 import Hdf5Storage  # h5py is optional

Storage: TypeAlias = "PtStorage | Hdf5Storage"
LARGE_BYTES = 10 * 1024**3


def open_storage(directory: Path, storage_format: str, use_mmap: bool | None, config: dict[str, Any]) -> Storage:
    """Choose the storage, or say what is missing.

    Args:
        storage_format: "auto", "pt" or "hdf5".
        use_mmap: None maps directories that are (or say they are) above 10 GB.
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


def convert_to_hdf5(directory: Path, compression: str | None = "gzip") -> None:
    """Write the ``.pt`` tables of a directory into its ``dataset.h5``."""
    try:
        convert = _hdf5().convert
    except ImportError as error:
        raise MissingExtraError(
            "h5py is required for HDF5 conversion. Install with: pip install h5py (or 'lading[hdf5]')"
        ) from error
    detect_format(directory, "pt")
    convert(directory, compression)


def find_split(storage: Storage, split: str) -> Storage:
    """Return the storage that holds a split: an HDF5 file without it falls back to the ``*_idx.pt`` files."""
    table = split_table(split)
    holders: list[Storage] = [storage, PtStorage(storage.directory)]
    for holder in holders if split in SPLITS else []:
        if has_table(holder, table):
            return holder
    raise SourceError(f"Split file not found: {storage.directory / table.file}. Valid splits are: {', '.join(SPLITS)}")


def has_table(storage: Storage, table: JasperTable) -> bool:
    """True where a storage holds a table."""
    try:
        storage.require(table)
    except FileNotFoundError:
        return False
    return True


def _hdf5() -> ModuleType:
    from lading.kits.jasper import hdf5 as jasper_hdf5  # h5py is optional and only needed here

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
