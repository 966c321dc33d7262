"""Read the rows of a bill as NumPy columns, from any sources, without a framework.

source_idx  0 1 1 0        source 0 ─▶ places 0, 3
rows        7 2 9 4        source 1 ─▶ places 1, 2        interleaved into one batch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.hashing import key64, keys64
from lading.source.reader import Reader, split_by_source
from lading.source.spec import as_array

I64 = NDArray[np.int64]


def read_columns(
    readers: Sequence[Reader], source_idx: NDArray[Any], rows: I64, *, seed: int, epoch: int, names: Mapping[int, str]
) -> Any:
    """Return the columns of some samples: a dict, a tuple or one array, a row for each sample.

    Args:
        readers: How each source is read.
        source_idx: Source of each row of the batch.
        rows: Row in its source of each row of the batch.
        seed: Seed of the plan, for sources that want randomness.
        epoch: Epoch of the rows, for the same.
        names: Name of a dataset in each source, for errors.
    """
    keyed = any(reader.keyed for reader in readers)
    keys = keys64(key64(seed, epoch), source_idx, rows) if keyed else None
    parts = []
    for source, places in split_by_source(source_idx, len(readers)):
        part_keys = None if keys is None else keys[places]
        parts.append((source, places, _part(readers[source], rows[places], epoch, part_keys)))
    return parts[0][2] if len(parts) == 1 else _interleaved(parts, len(rows), names)


def _part(reader: Reader, indices: I64, epoch: int, keys: Any) -> Any:
    if reader.columns is not None:
        return _as_arrays(reader.columns(indices, epoch, keys))
    return _stacked(reader.samples(indices, epoch, keys))


def _as_arrays(columns: Any) -> Any:
    if isinstance(columns, Mapping):
        return {name: _as_arrays(column) for name, column in columns.items()}
    if isinstance(columns, tuple | list):
        return tuple(map(_as_arrays, columns))
    return as_array(columns)


def _stacked(samples: list[Any]) -> Any:
    first = samples[0]
    if isinstance(first, Mapping):
        return {name: _stacked([sample[name] for sample in samples]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(_stacked(list(values)) for values in zip(*samples, strict=True))
    return np.stack([as_array(sample) for sample in samples])


def _interleaved(parts: Sequence[tuple[int, I64, Any]], size: int, names: Mapping[int, str]) -> Any:
    """Put the rows of several sources into one batch, in slot order."""
    structure = parts[0][2]
    for number, _, part in parts[1:]:
        if _shape(part) != _shape(structure):
            mine, theirs = (names.get(n, str(n)) for n in (parts[0][0], number))
            raise SourceError(
                f"datasets {mine!r} and {theirs!r} do not fit into one batch: {_shape(structure)} and {_shape(part)}. "
                "Give them the same keys, dtypes and shapes."
            )
    if isinstance(structure, dict):
        return {name: _interleaved([(n, r, p[name]) for n, r, p in parts], size, names) for name in structure}
    if isinstance(structure, tuple):
        return tuple(_interleaved([(n, r, p[i]) for n, r, p in parts], size, names) for i in range(len(structure)))
    out = np.empty((size, *structure.shape[1:]), structure.dtype)
    for _, rows, part in parts:
        out[rows] = part
    return out


def _shape(part: Any) -> str:
    if isinstance(part, dict):
        return f"keys {', '.join(sorted(part))}"
    return f"{len(part)} columns" if isinstance(part, tuple) else f"{part.dtype} rows of shape {part.shape[1:]}"
