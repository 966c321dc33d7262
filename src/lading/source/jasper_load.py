"""Read the tables of a JASPER directory and check them, in the order in which errors are promised.

split there? ▸ every file there? ▸ shapes ▸ splits ▸ pairs ▸ negatives ▸ lengths ▸ contents
"""

from __future__ import annotations

from torch import Tensor

from lading.source.jasper_layout import HDF5_FILE, KEYWORDS_FILE, KEYWORDS_HDF5, NEGATIVES, TABLES, Table, split_table
from lading.source.jasper_storage import Storage, find_split
from lading.source.jasper_validate import (
    FULL_SCAN_BYTES,
    check_contents,
    check_entries,
    check_keywords,
    check_negatives,
    check_references,
    check_rows,
    check_shape,
    check_split,
    check_tiers,
)

Sizes = tuple[int, int]


def load_split(storage: Storage, split: str) -> tuple[Tensor, str]:
    """Return the pair numbers of a split, of the right shape, and the name of their file."""
    holder, table = find_split(storage, split), split_table(split)
    pairs = check_shape(holder.read(table), table, holder.label(table), 0, 0)
    return pairs.clone(), holder.label(table)  # used on every sample, so never mapped


def load_tables(storage: Storage, sizes: Sizes) -> dict[str, Tensor]:
    """Return every table by name, of the right shape."""
    return {table.name: _read(storage, table, sizes) for table in TABLES}


def require_files(storage: Storage, split: str) -> None:
    """Name the split or the file that is missing before anything is read."""
    find_split(storage, split)
    for table in TABLES:
        storage.require(table)
    storage.require_keyword_ids()


def load_negatives(storage: Storage, sizes: Sizes, num_pairs: int, num_sources: int) -> dict[str, Tensor]:
    """Return the negatives and their tiers, checked as a whole before anybody uses them."""
    tables = {table.name: _read(storage, table, sizes) for table in NEGATIVES}
    for table in NEGATIVES:
        check_entries(tables[table.name], table, num_pairs, storage.label(table))
    check_negatives(tables["hard_negatives"], num_sources, storage.label(NEGATIVES[0]))
    check_tiers(tables["negative_tiers"], storage.label(NEGATIVES[1]))
    return tables


def check_tables(storage: Storage, tables: dict[str, Tensor], validate: bool | None) -> None:
    """Refuse what does not hold together.

    Args:
        storage: Where the tables came from, for names in errors.
        tables: The tables.
        validate: True: every value. False: only what would make a batch impossible. None: every value below 1 GB,
            above that all but the long scans (NaN, Inf, ranges, keyword ids).
    """
    check_references(tables, storage.label, below_zero=validate is not False)
    if validate is False:
        return
    check_rows(tables, storage.label)
    size = sum(tensor.nbytes for tensor in tables.values())
    if validate or size < FULL_SCAN_BYTES:
        check_contents(tables, storage.label)
        label = KEYWORDS_FILE if storage.format == "pt" else f"{HDF5_FILE}/{KEYWORDS_HDF5}"
        check_keywords(storage.keyword_ids(), len(tables["pair_index"]), len(tables["keyword_embs"]), label)


def check_pairs(pairs: Tensor, split: str, label: str, num_pairs: int, validate: bool | None) -> None:
    """Refuse an empty split and pair numbers that do not exist."""
    check_split(pairs, split, label, num_pairs, below_zero=validate is not False)


def _read(storage: Storage, table: Table, sizes: Sizes) -> Tensor:
    return check_shape(storage.read(table), table, storage.label(table), *sizes)
