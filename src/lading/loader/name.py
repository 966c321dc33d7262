"""The name columns of a dict batch: added from the bill, or compared with it where samples carry their own.

bill    dataset_idx 3 3, idx 7 2        batch {"x": ...}                           gains idx, dataset_idx
                                        batch {"x": ..., idx: 7 2, dataset_idx: 3 3}    stays as it is
                                        batch {"x": ..., idx: 7 9, dataset_idx: 3 3}    is refused
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import LoaderError, SourceError
from lading.identity import Bill
from lading.identity.bill import DATASET_IDX, IDX, IS_PADDING, NAME_COLUMNS
from lading.loader.fetch import Delivered
from lading.loader.gather import Arrays
from lading.runtime.arrays import host
from lading.source.reader import provides_names


def column_keys(names: Mapping[str, str] | bool | None, sources: Iterable[Any], *, may_pad: bool) -> dict[str, str]:
    """Return the key in dict batches of each name column.

    Args:
        names: Other keys, as the user gave them; False: no name columns.
        sources: The sources; one that names its samples itself may use other keys.
        may_pad: Whether rows can be padding, so that batches say which.
    """
    if names is False:
        return {}
    chosen = dict(names) if isinstance(names, Mapping) else {}
    keys = list(chosen.values())
    if (
        not isinstance(names, Mapping | bool | None)
        or not all(isinstance(k, str) for k in keys)
        or len({*keys}) < len(keys)
    ):
        raise LoaderError(
            f"names is {names!r}: expected a dict of different texts, such as {{'idx': 'sample_idx'}}, or False."
        )
    unknown = sorted(set(chosen) - set(NAME_COLUMNS))
    if unknown:
        raise LoaderError(f"names has {', '.join(unknown)}: expected keys among {', '.join(NAME_COLUMNS)}.")
    for source in sources:
        own = getattr(source, "names", None) if provides_names(source) else None
        chosen = {**own, **chosen} if isinstance(own, Mapping) else chosen
    return {name: chosen.get(name, name) for name in NAME_COLUMNS if name != IS_PADDING or may_pad}


class RowNamer:
    """Add the name columns to batches, whichever process fetched them; ``own``: see ``missing_names``."""

    def __init__(self, arrays: Arrays, *, own: bool) -> None:
        self._arrays, self._own = arrays, own

    def __call__(self, fetched: Delivered) -> Delivered:
        request, delivery = fetched
        batch, names = delivery.batch, request.names
        if names and isinstance(batch, dict):
            bill = delivery.bill or request.bill
            self._arrays.finish(batch, missing_names(batch, bill, names, own=self._own))
        return fetched


def missing_names(batch: Mapping[str, Any], bill: Bill, keys: Mapping[str, str], *, own: bool) -> dict[str, Any]:
    """Return the name columns that a dict batch has not got, by key; refuse one that means, or says, something else.

    Args:
        keys: Key of each name column.
        own: Whether samples carry names themselves: then they must be the bill's.
    """
    columns: dict[str, NDArray[Any]] = {IDX: bill.idx, DATASET_IDX: bill.dataset_idx, IS_PADDING: bill.is_padding}
    missing = {}
    for name, key in keys.items():
        if key not in batch:
            missing[key] = columns[name]
        elif not own:
            raise SourceError(
                f"dataset {bill.name_of(0)!r} has a key {key!r} of its own, which Lading adds to every batch. "
                f'Pass names={{"{name}": "sample_{name}"}} to choose another key, or names=False to add none.'
            )
        else:
            _check_same(key, host(batch[key]), columns[name], bill)
    return missing


def _check_same(key: str, found: NDArray[Any], planned: NDArray[Any], bill: Bill) -> None:
    if found.shape == planned.shape and bool(np.array_equal(found, planned)):
        return
    said, meant = f"an array of shape {found.shape}", f"one of shape {planned.shape}"
    if found.shape == planned.shape:
        row = int(np.flatnonzero(found != planned)[0])
        said, meant = f"{found[row]} in row {row}", f"{planned[row]}"
    raise SourceError(
        f"the samples of dataset {bill.name_of(0)!r} carry {key!r} themselves and say {said}, their bill says {meant}. "
        "Let the dataset offer its parts (lading.order.Part), wrap it in lading.TaggedDataset, or pass names=False."
    )
