"""Read the rows of a bill from any sources, one gather per source and column.

    bill    source_idx  0 1 1 0        source 0 ─▶ rows 0, 3
            rows        7 2 9 4        source 1 ─▶ rows 1, 2        scattered into one batch

No framework is imported here: what differs between torch and NumPy is asked of
``Arrays``, which travels to the worker processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.hashing import key64, keys64
from lading.runtime.arrays import is_texts
from lading.source.counting import check_columns, check_samples
from lading.source.reader import Reader, split_by_source

U64 = NDArray[np.uint64]
Part = tuple[int, NDArray[np.int64], Any]
"""Number of the source, rows of the batch, and the columns of these rows."""


class Arrays(Protocol):
    """The arrays of a face. It is picklable, and the same in every process.

    A column is an array with a row per sample, or anything else with a length (then it is mixed as a list).
    """

    def columns(self, columns: Any) -> Any:
        """Return what a source gave as the face's arrays, in the containers that ``collate`` would use."""
        ...

    def allocate(self, rows: int, like: Any, /) -> Any:
        """Return an empty array with so many rows of the shape, dtype and device of a column's rows."""
        ...

    def over(self, memory: NDArray[Any], like: Any, /) -> Any:
        """Return ready memory as an array of the dtype of a column; its elements have as many bytes."""
        ...

    def scatter(self, out: Any, rows: NDArray[np.int64], part: Any, /) -> None:
        """Write the rows of one source to their places in a batch."""
        ...

    def collate(self, samples: list[Any]) -> Any:
        """Make a batch of samples."""
        ...

    def finish(self, batch: dict[str, Any], names: Mapping[str, NDArray[Any]]) -> None:
        """Add the name columns to a dict batch; they are copies, the bill keeps its own."""
        ...

    def selecting(self, column: Any, /) -> Callable[..., Any] | None:
        """Return what copies rows of a large column by threads of the framework's own: ``(rows, out=...)``; or None."""
        ...


def sample_keys(seed: int, bill: Bill) -> U64:
    """Return a key for each row: a hash of (seed, epoch, source, row)."""
    return keys64(key64(seed, bill.epoch), bill.source_idx, bill.rows)


def gather_columns(readers: Sequence[Reader], bill: Bill, keys: U64 | None, arrays: Arrays) -> Any:
    """Return the batch of a bill whose sources all give columns."""
    if len(readers) == 1:
        return arrays.columns(_columns(readers[0], bill.rows, bill.epoch, keys))
    parts: list[Part] = []
    for number, rows in split_by_source(bill.source_idx, len(readers)):
        part_keys = None if keys is None else keys[rows]
        parts.append((number, rows, arrays.columns(_columns(readers[number], bill.rows[rows], bill.epoch, part_keys))))
    return parts[0][2] if len(parts) == 1 else _interleaved(parts, bill, arrays)


def gather_samples(readers: Sequence[Reader], bill: Bill, keys: U64 | None) -> list[Any]:
    """Return the samples of a bill in row order."""
    if len(readers) == 1:
        return _samples(readers[0], bill.rows, bill.epoch, keys)
    samples: list[Any] = [None] * len(bill)
    for number, rows in split_by_source(bill.source_idx, len(readers)):
        part_keys = None if keys is None else keys[rows]
        part = _samples(readers[number], bill.rows[rows], bill.epoch, part_keys)
        for row, sample in zip(rows.tolist(), part, strict=True):
            samples[row] = sample
    return samples


def check_alike(samples: Sequence[Any], bill: Bill) -> None:
    """Refuse dicts of several sources whose keys differ: a collate function would take those of the first sample.

    One that lacks a key fails there; one that has another would lose it, or not, by its place in the batch.
    """
    first = samples[0]
    if isinstance(first, Mapping) and len(set(map(len, samples))) > 1:
        row = next(row for row, sample in enumerate(samples) if len(sample) != len(first))
        raise _mismatch(bill, (0, np.zeros(1, np.int64), first), (0, np.full(1, row), samples[row]))


def _columns(reader: Reader, indices: NDArray[np.int64], epoch: int, keys: U64 | None) -> Any:
    assert reader.columns is not None
    found = reader.columns(indices, epoch, keys)
    if reader.layout is None:
        check_columns(found, len(indices), type(reader.source).__name__)
    return found


def _samples(reader: Reader, indices: NDArray[np.int64], epoch: int, keys: U64 | None) -> list[Any]:
    found = reader.samples(indices, epoch, keys)
    check_samples(found, indices, type(reader.source).__name__)
    return found


def _interleaved(parts: Sequence[Part], bill: Bill, arrays: Arrays) -> Any:
    """Put the rows of several sources into one batch, in slot order."""
    first, *others = parts
    for other in others:
        if not _fits(other[2], first[2]):
            raise _mismatch(bill, first, other)
    structure = first[2]
    if isinstance(structure, Mapping):
        return {name: _interleaved([(n, r, p[name]) for n, r, p in parts], bill, arrays) for name in structure}
    if isinstance(structure, list | tuple) and not is_texts(structure):
        columns = ([(n, r, p[i]) for n, r, p in parts] for i in range(len(structure)))
        return type(structure)(_interleaved(column, bill, arrays) for column in columns)
    if not _is_array(structure):
        return _mixed(parts, len(bill))
    out = arrays.allocate(len(bill), structure)
    for _, rows, part in parts:
        arrays.scatter(out, rows, part)
    return out


def _mixed(parts: Sequence[Part], size: int) -> list[Any]:
    mixed: list[Any] = [None] * size
    for _, rows, part in parts:
        for row, value in zip(rows.tolist(), part, strict=True):
            mixed[row] = value
    return mixed


def _is_array(column: Any) -> bool:
    """Say whether rows can be scattered; NumPy's texts and objects are mixed one by one."""
    return hasattr(column, "shape") and getattr(column.dtype, "kind", "f") in "biufc"


def _fits(part: Any, first: Any) -> bool:
    """Say whether two parts have the same keys, or the same dtype and row shape."""
    if _is_array(part) and _is_array(first):
        return bool(part.dtype == first.dtype and part.shape[1:] == first.shape[1:])
    return _shape(part) == _shape(first)


def _shape(part: Any) -> str:
    if isinstance(part, Mapping):
        return f"keys {', '.join(sorted(map(str, part)))}"
    if isinstance(part, list | tuple) and not is_texts(part):
        return f"{len(part)} columns"
    return f"{part.dtype} rows of shape {tuple(part.shape[1:])}" if _is_array(part) else "a column of objects"


def _mismatch(bill: Bill, first: Part, other: Part) -> SourceError:
    mine, theirs = (bill.name_of(int(rows[0])) for rows in (first[1], other[1]))
    return SourceError(
        f"datasets {mine!r} and {theirs!r} do not fit into one batch: {_shape(first[2])} and {_shape(other[2])}. "
        "Give them the same keys, dtypes and shapes, or pass a collate_fn."
    )
