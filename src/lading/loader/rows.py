"""Gather a whole batch at once where the samples are rows of arrays, however many sources and columns.

    addresses of every column of every source ─┐
    source and row of each row of a bill      ─┼─▶ one compiled loop ─▶ columns of the batch
    memory that is unused                     ─┘

Apart from ``gather``, which reads what else there is and does the same where
Numba is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lading.identity import Bill
from lading.loader.gather import Arrays
from lading.runtime import compiled
from lading.source import buffers
from lading.source.protocol import Reader

_Layout = tuple[Any, ...]


class RowGather:
    """The arrays of all sources, ready to be gathered from.

    Args:
        sources: Of each source its columns; all have the same dtypes and row shapes.
        layout: The container they come in: ``one``, ``tuple``, or ``dict`` and its keys.
        arrays: The face's arrays.
    """

    def __init__(self, sources: Sequence[Sequence[Any]], layout: _Layout, arrays: Arrays) -> None:
        from lading.loader import kernels  # opened at first use: Numba is optional and slow to import

        self._gather, self._layout, self._arrays = kernels.gather, layout, arrays
        self._shelves = [buffers.Buffers() for _ in sources[0]]
        self._columns = [column for columns in sources for column in columns]  # keeps the memory alive
        self._like = [arrays.columns(_first_row(column)) for column in sources[0]]
        self._moving = [column for column in self._columns if hasattr(column, "data_ptr")]  # a tensor may be resized
        self._found = [column.data_ptr() for column in self._moving]
        self._addresses = np.array([[_address(column) for column in columns] for columns in sources], dtype=np.int64)
        self._lengths = np.array([len(columns[0]) for columns in sources], dtype=np.int64)
        self._sizes = np.array([_row_bytes(column) for column in sources[0]], dtype=np.int64)
        self._row_bytes = self._sizes.tolist()

    @classmethod
    def of(cls, readers: Sequence[Reader], arrays: Arrays) -> RowGather | None:
        """Return the gather of some sources; None where they are not plain rows of equal columns in memory."""
        if not compiled.enabled() or any(reader.arrays is None for reader in readers):
            return None
        found = [_taken_apart(reader.arrays) for reader in readers]
        kinds = {(layout, tuple(map(_kind, columns))) for layout, columns in found}
        layout, columns = found[0]
        if len(kinds) != 1 or not columns or not all(_is_plain(c) for _, columns in found for c in columns):
            return None
        return cls([columns for _, columns in found], layout, arrays)

    def batch(self, bill: Bill) -> Any:
        """Return the batch of a bill."""
        if [column.data_ptr() for column in self._moving] != self._found:
            raise RuntimeError("a tensor of a dataset was resized while it was read from.")
        rows = bill.rows
        out, targets = self._allocated(len(rows))
        wrong = self._gather(self._addresses, self._lengths, self._sizes, bill.source_idx, rows, targets)
        if wrong >= 0:
            raise IndexError(f"row {rows[wrong]} of {self._lengths[bill.source_idx[wrong]]} rows")
        container, *keys = self._layout
        if container == "one":
            return out[0]
        return dict(zip(keys, out, strict=True)) if container == "dict" else self._arrays.columns(tuple(out))

    def _allocated(self, count: int) -> tuple[list[Any], Any]:
        """Return empty columns for a batch, and their addresses; large ones are over memory that is used again."""
        arrays, out = self._arrays, []
        for like, size, shelf in zip(self._like, self._row_bytes, self._shelves, strict=True):
            if count * size < buffers.MIN_BYTES:
                out.append(arrays.allocate(count, like))
            else:
                out.append(arrays.over(shelf.memory(count * size), count, like))
        return out, np.array([_address(column) for column in out], dtype=np.int64)


def _taken_apart(arrays: Any) -> tuple[_Layout, list[Any]]:
    if isinstance(arrays, Mapping):
        return ("dict", *arrays), list(arrays.values())
    return (("tuple",), list(arrays)) if isinstance(arrays, list | tuple) else (("one",), [arrays])


def _kind(column: Any) -> tuple[str, str, tuple[int, ...]]:
    return ("torch" if hasattr(column, "data_ptr") else "numpy"), str(column.dtype), tuple(column.shape[1:])


def _is_plain(column: Any) -> bool:
    """Say whether rows are bytes side by side in this process's memory."""
    if hasattr(column, "data_ptr"):
        # The bytes of a lazily conjugated or negated tensor are not its values.
        odd = column.requires_grad or column.is_conj() or column.is_neg() or column.is_quantized
        in_rows = column.device.type == "cpu" and str(column.layout) == "torch.strided"
        return in_rows and not odd and bool(column.is_contiguous())
    return isinstance(column, np.ndarray) and column.dtype.kind in "biufc" and column.flags.c_contiguous


def _first_row(column: Any) -> Any:
    """Return the first row, of an array a copy: torch warns of arrays that cannot be written to."""
    return column[:1] if hasattr(column, "data_ptr") else np.array(column[:1])


def _address(column: Any) -> int:
    return int(column.data_ptr() if hasattr(column, "data_ptr") else column.__array_interface__["data"][0])


def _row_bytes(column: Any) -> int:
    size = column.element_size() if hasattr(column, "element_size") else column.itemsize
    return int(size * np.prod(column.shape[1:], dtype=np.int64))
