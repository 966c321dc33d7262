"""One value for each sample, wherever it is written: difficulties of a curriculum, weights of samples.

an array · the name of a column · a function of the source · a ``.npy`` file      or these by source
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import PlanError
from lading.loader.request import LoaderRequest
from lading.runtime.arrays import host
from lading.source.reader import Reader

_READ = 4096
_BALANCED = "balanced:"


def by_source(given: Any, names: Sequence[str], what: str) -> Mapping[str, Any]:
    """Return what is given for each source; one array for several sources is refused."""
    if isinstance(given, Mapping):
        return given
    if len(names) > 1 and not (isinstance(given, str) or callable(given)):
        raise PlanError(
            f"one array of {what} for {len(names)} sources: expected one for each. Pass "
            f"{{{names[0]!r}: ..., {names[1]!r}: ...}}."
        )
    return dict.fromkeys(names, given)


def values_of(reader: Reader, given: Any, what: str) -> NDArray[Any]:
    """Return the value of each sample of a source, however it is given; ``what`` they are, for errors."""
    if callable(given):
        given = given(reader.source)
    if isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(".npy")):
        try:
            return host(np.load(given, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise PlanError(f"{what} in {os.fspath(given)!r} cannot be read: {error}.") from error
    try:
        return host(_column(reader, given) if isinstance(given, str) else given)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise PlanError(f"{what}: expected one number for each sample ({error}).") from error


def sample_weights_of(request: LoaderRequest, readers: Sequence[Reader]) -> dict[str, NDArray[Any]]:
    """Return the weights of samples that a loader was asked for, by source; sources may be left out."""
    known = dict(zip(request.sources, readers, strict=True))
    given = by_source(request.sample_weights, list(known), "sample_weights")
    return {name: _weights(known[name], w, name) if name in known else w for name, w in given.items()}  # refused later


def _weights(reader: Reader, given: Any, name: str) -> NDArray[Any]:
    """Return the weights of a source's samples; ``balanced:label``: the same for every class of a column."""
    what = f"sample_weights of {name!r}"
    if not (isinstance(given, str) and given.startswith(_BALANCED)):
        return values_of(reader, given, what)
    labels = values_of(reader, given.removeprefix(_BALANCED), what)
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.divide(1.0, sizes[classes])


def _column(reader: Reader, column: str) -> Any:
    """Return one column of a source: at once where it has columns, else sample by sample."""
    columns = getattr(reader.source, "columns", None)
    if isinstance(columns, Mapping) and column in columns:
        return columns[column]
    chosen = np.arange(len(reader.source), dtype=np.int64)
    starts = range(0, len(chosen), _READ)
    parts = (reader.samples(c := chosen[start : start + _READ], 0, np.zeros(len(c), np.uint64)) for start in starts)
    return [host(sample[column]) for part in parts for sample in part]
