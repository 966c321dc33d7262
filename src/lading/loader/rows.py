"""Gather a whole batch at once where the samples are rows of arrays, however many sources and columns.

    addresses of every column of every source ─┐
    source and row of each row of a bill      ─┼─▶ one compiled loop ─▶ columns of the batch
    memory that is unused                     ─┘

The loop is one thread. Large columns of a single source are left to the framework where that has threads of its own
(``Arrays.selecting``). What is no such rows is read by ``gather``, which gives the same where nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lading.identity import Bill
from lading.loader.gather import Arrays
from lading.runtime import compiled
from lading.runtime.mapped import is_mapped, read_rows_ahead
from lading.runtime.threads import was_forked
from lading.source import buffers
from lading.source.protocol import Reader
from lading.source.reader import split_by_source

_Layout = tuple[Any, ...]
_LARGE_BYTES = 1 << 18  # of a column in a batch; less is copied before other threads are awake


class RowGather:
    """The arrays of all sources, ready to be gathered from.

    Args:
        sources: Of each source its columns; all have the same dtypes and row shapes.
        layout: The container they come in: ``one``, ``tuple``, or ``dict`` and its keys.
        arrays: The face's arrays.
    """

    def __init__(self, sources: Sequence[Sequence[Any]], layout: _Layout, arrays: Arrays) -> None:
        self._layout, self._arrays = layout, arrays
        self._shelves = [buffers.Buffers() for _ in sources[0]]
        self._columns = [column for columns in sources for column in columns]  # keeps the memory alive
        self._like = [arrays.columns(_first_row(column)) for column in sources[0]]
        self._memory = [(_same_bytes(like), tuple(like.shape[1:])) for like in self._like]
        self._moving = [column for column in self._columns if hasattr(column, "data_ptr")]  # a tensor may be resized
        self._found = [column.data_ptr() for column in self._moving]
        self._addresses = np.array([[_address(column) for column in columns] for columns in sources], dtype=np.int64)
        mapped = [[column for column in columns if is_mapped(column)] for columns in sources]
        self._mapped = mapped if any(mapped) else []
        self._lengths = np.array([len(columns[0]) for columns in sources], dtype=np.int64)
        self._sizes = np.array([_row_bytes(column) for column in sources[0]], dtype=np.int64)
        self._row_bytes = self._sizes.tolist()
        self._selecting = _selecting(sources, arrays)

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
        if any(_type(c) != _type(arrays.columns(_first_row(c))) for c in columns):
            return None  # of a type that the face has not got
        return cls([columns for _, columns in found], layout, arrays)

    def batch(self, bill: Bill) -> Any:
        """Return the batch of a bill."""
        if [column.data_ptr() for column in self._moving] != self._found:
            raise RuntimeError("a tensor of a dataset was resized while it was read from.")
        rows = bill.rows
        if self._mapped:
            self._read_ahead(bill)
        out, targets = self._allocated(len(rows))
        large = self._large(len(rows))
        targets[large] = 0
        table = self._addresses, self._lengths, self._sizes
        wrong = compiled.kernels.gather(*table, bill.source_idx, rows, targets)
        if wrong >= 0:
            raise IndexError(f"row {rows[wrong]} of {self._lengths[bill.source_idx[wrong]]} rows")
        chosen = self._arrays.columns(rows.copy()) if large else None
        for number in large:
            self._selecting[number](chosen, out=out[number])
        container, *keys = self._layout
        if container == "one":
            return out[0]
        return dict(zip(keys, out, strict=True)) if container == "dict" else self._arrays.columns(tuple(out))

    def _read_ahead(self, bill: Bill) -> None:
        """Announce the rows of mapped files."""
        for number, places in split_by_source(bill.source_idx, len(self._mapped)):
            for column in self._mapped[number]:
                read_rows_ahead(column, bill.rows[places])

    def _large(self, count: int) -> list[int]:
        """Return the columns that the framework copies; its threads are not there in a forked process."""
        if not self._selecting or was_forked():
            return []
        return [number for number in self._selecting if count * self._row_bytes[number] >= _LARGE_BYTES]

    def _allocated(self, count: int) -> tuple[list[Any], Any]:
        """Return empty columns for a batch, and their addresses; large ones are over memory that is used again."""
        over, out = self._arrays.over, []
        for like, (dtype, shape), size, shelf in zip(
            self._like, self._memory, self._row_bytes, self._shelves, strict=True
        ):
            if count * size < buffers.MIN_BYTES:
                memory = np.empty((count, *shape), dtype)
            else:
                memory = shelf.array((count, *shape), dtype)
            out.append(over(memory, like))
        return out, np.array([_address(column) for column in out], dtype=np.int64)


def _selecting(sources: Sequence[Sequence[Any]], arrays: Arrays) -> dict[int, Callable[..., Any]]:
    """Return by number the columns that a framework can copy, and how; none where there are several sources."""
    found = enumerate(map(arrays.selecting, sources[0])) if len(sources) == 1 else ()
    return {number: select for number, select in found if select is not None}


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


def _type(column: Any) -> str:
    return str(column.dtype).removeprefix("torch.")


def _same_bytes(like: Any) -> np.dtype[Any]:
    """Return NumPy's type of a column's elements, or one of as many bytes where NumPy has none."""
    try:
        # A tensor that was seen as an array cannot be resized any more: not that of the user.
        found: np.dtype[Any] = (like.new_empty(0).numpy() if hasattr(like, "data_ptr") else like).dtype
    except TypeError:
        found = np.dtype(f"i{like.element_size()}")
    return found


def _address(column: Any) -> int:
    return int(column.data_ptr() if hasattr(column, "data_ptr") else column.__array_interface__["data"][0])


def _row_bytes(column: Any) -> int:
    size = column.element_size() if hasattr(column, "element_size") else column.itemsize
    return int(size * np.prod(column.shape[1:], dtype=np.int64))
