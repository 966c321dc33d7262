"""Is a JASPER directory what it promises to be? Shapes, then references, then every value.

    shapes        dimensions, sizes, types                             always
    references    splits → pairs → questions, sources, negatives      always
    rows          below 0, clusters, tiers, lengths                    unless validate=False
    contents      NaN, Inf, ranges, keyword ids                        validate=True (default below 1 GB)

Tables are scanned in blocks, so a mapped table never comes into memory as a
whole. Every error names the file, the row and the value.

Errors come in the order that is promised:

split there? ▸ every file there? ▸ shapes ▸ splits ▸ pairs ▸ negatives ▸ lengths ▸ contents
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lading.errors import SourceError
from lading.kits.jasper.layout import (
    BY_NAME,
    HDF5_FILE,
    KEYWORDS_FILE,
    KEYWORDS_HDF5,
    NEGATIVES,
    STEERING_TABLES,
    TABLES,
    JasperTable,
    split_table,
)
from lading.kits.jasper.storage import Storage, find_split

BLOCK_BYTES = 16 * 1024**2
FULL_SCAN_BYTES = 1024**3
REPAIR = "Rebuild the dataset with 'lading jasper build', or correct that row."
RANGES = {"pair_relevance": (0, 1), "centroid_distances": (0, 2)}

Label = Callable[[JasperTable], str]


def check_shape(tensor: Tensor, table: JasperTable, label: str, embedding_dim: int, n_neg: int) -> Tensor:
    """Return the tensor if it has the dimensions, sizes and type its table promises."""
    expected = table.expected_shape(embedding_dim, n_neg)
    if tensor.ndim != len(expected):
        raise SourceError(f"{label} has {tensor.ndim} dimensions, expected {len(expected)} dimensions")
    for axis, (size, wanted) in enumerate(zip(tensor.shape, expected, strict=True)):
        if wanted is not None and size != wanted:
            raise SourceError(f"{label} dimension {axis} has size {size}, expected {wanted}")
    found = str(tensor.dtype).removeprefix("torch.")
    if found != table.dtype:
        raise SourceError(
            f"{label} has dtype {found}, expected {table.dtype}. Save it as tensor.to(torch.{table.dtype})."
        )
    return tensor


def check_split(pairs: Tensor, split: str, label: str, num_pairs: int, *, below_zero: bool = True) -> None:
    """Refuse an empty split and pair numbers that do not exist."""
    if len(pairs) == 0:
        raise SourceError(
            f"Split '{split}' is empty ({label} has 0 rows). Rebuild the dataset with more pairs, or give this split "
            "a share above 0."
        )
    check_ids(pairs, "Split indices reference pair", "pair", num_pairs, label, below_zero)


def check_references(tables: Mapping[str, Tensor], label: Label, *, below_zero: bool = True) -> None:
    """Refuse pairs and negatives that point at nothing, and steering tables of another length."""
    index, questions, sources = tables["pair_index"], tables["question_embs"], tables["source_embs"]
    for column, thing, pool in ((0, "question", questions), (1, "source", sources)):
        what = f"pair_index references {thing}"
        check_ids(index[:, column], what, thing, len(pool), label(BY_NAME["pair_index"]), below_zero)
    check_negatives(tables["hard_negatives"], len(sources), label(BY_NAME["hard_negatives"]), below_zero=below_zero)
    for table in TABLES:
        if table.name.startswith("steering_"):
            check_entries(tables[table.name], table, len(index), label(table))


def check_negatives(negatives: Tensor, num_sources: int, label: str, *, below_zero: bool = True) -> None:
    """Refuse negatives that are no sources."""
    check_ids(negatives, "hard_negatives references source", "source", num_sources, label, below_zero)


def check_rows(tables: Mapping[str, Tensor], label: Label) -> None:
    """Refuse tables of another length, clusters that do not exist, and tiers outside 1 to 4."""
    for table in TABLES:
        if table.shape[0] == "pairs":  # row p speaks of pair p
            check_entries(tables[table.name], table, len(tables["pair_index"]), label(table))
    clusters, where = len(tables["centroid_embs"]), label(BY_NAME["pair_cluster_id"])
    check_ids(tables["pair_cluster_id"], "pair_cluster_id references cluster", "cluster", clusters, where, True)
    check_tiers(tables["negative_tiers"], label(BY_NAME["negative_tiers"]))


def check_contents(tables: Mapping[str, Tensor], label: Label) -> None:
    """Refuse NaN, Inf, and relevances and distances outside their range."""
    for table in TABLES:
        if table.dtype == "float32":
            _check_finite(table.name, tables[table.name], label(table))
    for name, (low, high) in RANGES.items():
        _check_range(name, tables[name], low, high, label(BY_NAME[name]))


def check_keywords(ids: Any, num_pairs: int, num_keywords: int, label: str) -> None:
    """Refuse keyword ids that are not one list of existing keywords for each pair."""
    if not isinstance(ids, list) or not all(isinstance(row, list) for row in ids):
        raise SourceError(f"{label} holds a {type(ids).__name__}, expected a list with one list of ints for each pair.")
    if len(ids) != num_pairs:
        raise SourceError(f"pair_keyword_ids has {len(ids)} entries, expected {num_pairs} ({label}). {REPAIR}")
    if set(map(type, chain.from_iterable(ids))) - {int}:
        row, value = next((r, v) for r, row in enumerate(ids) for v in row if type(v) is not int)
        raise SourceError(f"pair_keyword_ids holds {value!r} ({label}, row {row}), expected integers. {REPAIR}")
    lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
    flat = np.fromiter(chain.from_iterable(ids), dtype=np.int64, count=int(lengths.sum()))
    owners = np.repeat(np.arange(len(ids)), lengths)
    what = "pair_keyword_ids references keyword"
    check_ids(torch.from_numpy(flat), what, "keyword", num_keywords, label, True, owners)


def check_ids(
    ids: Tensor,
    what: str,
    thing: str,
    count: int,
    label: str,
    below_zero: bool = True,
    owners: np.ndarray | None = None,
) -> None:
    """Refuse ids outside 0..count-1; the text gives the highest (or lowest) one and its row.

    Args:
        what: Beginning of the sentence.
        below_zero: Look for ids below 0, too.
        owners: Row of each id where that is not its own place.
    """
    for start, block in blocks(ids):
        low, high = (int(v) for v in torch.aminmax(block))
        if high >= count or (below_zero and low < 0):
            value = high if high >= count else low
            place = start + int((block == value).reshape(len(block), -1).any(1).nonzero()[0])
            row = place if owners is None else int(owners[place])
            problem = f"but only {count} {thing}s exist" if high >= count else f"but {thing} numbers start at 0"
            raise SourceError(f"{what} {value}, {problem} ({label}, row {row}). {REPAIR}")


def check_entries(tensor: Tensor, table: JasperTable, num_pairs: int, label: str) -> None:
    """Refuse a table that has not one row for each pair."""
    if len(tensor) != num_pairs:
        raise SourceError(f"{table.name} has {len(tensor)} entries, expected {num_pairs} ({label}). {REPAIR}")


def check_tiers(tiers: Tensor, label: str) -> None:
    """Refuse tiers outside 1 to 4."""
    _check_range("negative_tiers", tiers, 1, 4, label)


def blocks(tensor: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield (first row, rows) of about 16 MB, so that scanning a mapped table takes no memory."""
    row_bytes = max(1, tensor[:1].numel() * tensor.element_size())
    rows = max(1, BLOCK_BYTES // row_bytes)
    for start in range(0, len(tensor), rows):
        yield start, tensor[start : start + rows]


def _check_finite(name: str, tensor: Tensor, label: str) -> None:
    for start, block in blocks(tensor):
        # float32 cannot overflow a float64 sum, so the sum tells in one pass, without a temporary
        if torch.isfinite(block.sum(dtype=torch.float64)):
            continue
        bad = ~torch.isfinite(block.reshape(len(block), -1))
        row, column = (int(v) for v in bad.nonzero()[0])
        kind = "NaN" if torch.isnan(block.reshape(len(block), -1)[row, column]) else "Inf"
        raise SourceError(f"{kind} detected in {name} ({label}, row {start + row}, column {column}). {REPAIR}")


def _check_range(name: str, tensor: Tensor, low: int, high: int, label: str) -> None:
    for start, block in blocks(tensor):
        bad = ((block < low) | (block > high)).reshape(len(block), -1)
        if bad.any():
            row, column = (int(v) for v in bad.nonzero()[0])
            value = block.reshape(len(block), -1)[row, column].item()
            raise SourceError(f"{name} is {value:g}, expected {low} to {high} ({label}, row {start + row}). {REPAIR}")


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


def load_refreshed(storage: Storage, sizes: Sizes, num_pairs: int, num_sources: int) -> dict[str, Tensor]:
    """Return the tables that may be worked out anew (negatives, tiers, steering), checked before they are used."""
    tables = {table.name: _read(storage, table, sizes) for table in (*NEGATIVES, *STEERING_TABLES)}
    for table in (*NEGATIVES, *STEERING_TABLES):
        check_entries(tables[table.name], table, num_pairs, storage.label(table))
    for table in STEERING_TABLES:
        _check_finite(table.name, tables[table.name], storage.label(table))
    check_negatives(tables["hard_negatives"], num_sources, storage.label(NEGATIVES[0]))
    check_tiers(tables["negative_tiers"], storage.label(NEGATIVES[1]))
    return tables


def check_tables(storage: Storage, tables: dict[str, Tensor], validate: bool | None) -> None:
    """Refuse what does not hold together.

    Args:
        storage: Where the tables came from, for names in errors.
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


def _read(storage: Storage, table: JasperTable, sizes: Sizes) -> Tensor:
    return check_shape(storage.read(table), table, storage.label(table), *sizes)
