"""Hugging Face datasets read from their Arrow buffers: the batch that ``collate(dataset.__getitems__(rows))`` gives.

    rows ─▶ indices mapping ─▶ chunk and place ─▶ numbers of the batch's type
            select, shuffle    any chunks         int64, bool, float64 (no format) or float32 (numpy, torch)

Taken: integers and floats, bool, class labels, strings, lists of such numbers; formats none, numpy and torch without
arguments. What has nulls, is nested, decoded or transformed, and whatever differs in one of eight rows that are
compared when a dataset is opened, is read by ``__getitems__`` as ever. The buffers are the dataset's own: nothing is
copied or pickled, another process opens them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.runtime import compiled
from lading.runtime.imports import is_a
from lading.source.columns import MIN_BYTES, Buffers

I64 = NDArray[np.int64]
_COMPARED = 8  # rows
_KINDS = {
    pa.bool_(): np.dtype(bool),
    **{pa.from_numpy_dtype(name): np.dtype(name) for name in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")},
    **{pa.from_numpy_dtype(name): np.dtype(name) for name in ("f2", "f4", "f8")},
}
_SOURCES = [
    np.dtype(name) for name in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")
]  # as the kernel
_TARGETS = [np.dtype(name) for name in ("?", "i8", "f4", "f8")]  # counts them
_FEATURES = ("datasets:Value", "datasets:ClassLabel")
_LISTS = ("datasets:List", "datasets:LargeList", "datasets:Sequence")


class _Chunk(NamedTuple):
    """One chunk of a column.

    Attributes:
        data: The buffer that holds its values.
        first: The first value in it that the chunk, or its lists, count from.
        held: Values from there on.
        offsets: Where each row begins, the end of the last included; None where all have one length.
    """

    data: pa.Buffer
    first: int
    held: int
    offsets: NDArray[Any] | None


class NumberColumn:
    """Numbers, or lists of numbers that have one length in a batch.

    Args:
        kind: Arrow's type of a number.
        dtype: NumPy's type of a number in a batch.
    """

    def __init__(self, column: pa.ChunkedArray, kind: pa.DataType, dtype: np.dtype[Any]) -> None:
        self._stored, self._dtype, self.is_list = _KINDS[kind], dtype, column.type != kind
        self._chunks = [_chunk(c) for c in column.chunks if len(c)]
        self._firsts = np.cumsum([0, *(len(c) for c in column.chunks if len(c))], dtype=np.int64)
        self._length = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 1
        self.kind = f"{dtype}{' lists' if self.is_list else ''}"
        self._buffers, self._width = Buffers(), 0
        if self._chunks[0].offsets is not None:
            self._width = self._chunks[0].offsets.itemsize
        self._copy = self._compiled() if compiled.enabled() and self._stored in _SOURCES else self._plain

    def take(self, rows: I64) -> NDArray[Any]:
        """Return rows: an array of numbers, or one with a row for each list."""
        out = self._out(len(rows))
        wrong = self._copy(rows, out)
        if wrong == 0 and self._width and 0 <= rows[0] < self._firsts[-1]:  # the rows of this batch are not as the last
            self._length = self._length_of(int(rows[0]))
            out = self._out(len(rows))
            wrong = self._copy(rows, out)
        if wrong >= 0:
            raise self._misfit(int(rows[wrong]))
        return out

    def _out(self, count: int) -> NDArray[Any]:
        shape = (count, self._length) if self.is_list else (count,)
        if count * self._length * self._dtype.itemsize < MIN_BYTES:
            return np.empty(shape, self._dtype)
        return self._buffers.array(shape, self._dtype)

    def _compiled(self) -> Callable[[I64, NDArray[Any]], int]:
        size, copy = self._stored.itemsize, compiled.kernels.arrow_rows
        places = np.zeros((len(self._chunks), 4), dtype=np.int64)
        for place, (data, first, count, offsets) in zip(places, self._chunks, strict=True):
            place[:3] = data.address, count, first
            place[3] = 0 if offsets is None else offsets.__array_interface__["data"][0]
            if data.address % size:
                return self._plain
        kinds = self._firsts, places, _SOURCES.index(self._stored), _TARGETS.index(self._dtype), self._width
        return lambda rows, out: int(copy(*kinds, self._length, rows, out))

    def _plain(self, rows: I64, out: NDArray[Any]) -> int:
        """Copy rows one by one; return the first that is not there or has another length, or -1."""
        for number, row in enumerate(rows.tolist()):
            if not 0 <= row < self._firsts[-1] or self._length_of(row) != self._length:
                return number
            chunk, start, stop = self._place(row)
            if start < 0 or stop > chunk.held:
                return number
            with np.errstate(over="ignore"):  # as torch: too large is infinite
                values = _values(chunk, self._stored, start, stop).astype(self._dtype)
            out[number] = values if self.is_list else values[0]
        return -1

    def _place(self, row: int) -> tuple[_Chunk, int, int]:
        number = int(np.searchsorted(self._firsts, row, "right")) - 1
        chunk, inside = self._chunks[number], row - int(self._firsts[number])
        if chunk.offsets is None:
            return chunk, inside * self._length, (inside + 1) * self._length
        return chunk, int(chunk.offsets[inside]), int(chunk.offsets[inside + 1])

    def _length_of(self, row: int) -> int:
        _, start, stop = self._place(row)
        return max(stop - start, 0)

    def _misfit(self, row: int) -> Exception:
        if not 0 <= row < self._firsts[-1]:
            return IndexError(f"row {row} of {self._firsts[-1]} rows")
        chunk, start, stop = self._place(row)
        if not 0 <= start <= stop <= chunk.held:
            return SourceError(f"row {row} lies outside its Arrow buffer: the file is damaged. Make the dataset again.")
        return SourceError(
            f"row {row} has {self._length_of(row)} numbers, others of its batch {self._length}: expected as many in "
            "each. Pad or cut them, pack them (lading.PackedRows), or pass a collate_fn that does."
        )


class TextColumn:
    """Strings."""

    is_list, kind = False, "texts"

    def __init__(self, column: pa.ChunkedArray, *, in_numpy: bool, ends_at_nul: bool) -> None:
        self._chunks = [_chunk(c) for c in column.chunks if len(c)]
        self._firsts = np.cumsum([0, *(len(c) for c in column.chunks if len(c))], dtype=np.int64)
        self._bytes = [memoryview(chunk.data) for chunk in self._chunks]
        self._in_numpy, self._ends_at_nul = in_numpy, ends_at_nul

    def take(self, rows: I64) -> list[str]:
        found = list(self._texts(rows))
        if self._in_numpy:
            return list(np.asarray(found))  # NumPy's texts end before zeros
        return [text.rstrip("\0") for text in found] if self._ends_at_nul else found

    def _texts(self, rows: I64) -> Iterator[str]:
        numbers = np.searchsorted(self._firsts, rows, "right") - 1
        for number, row in zip(numbers.tolist(), (rows - self._firsts[numbers]).tolist(), strict=True):
            offsets = self._chunks[number].offsets
            assert offsets is not None
            yield str(self._bytes[number][offsets[row] : offsets[row + 1]], "utf-8")


class ArrowRows:
    """A Hugging Face dataset whose batches are made from its buffers.

    Args:
        columns: How each column is read.
        mapping: The row of the table that each row of the dataset is; None: they are the same.

    Attributes:
        layout: What the columns of all batches are, but for the lengths of lists.
    """

    def __init__(
        self, dataset: Any, columns: dict[str, NumberColumn | TextColumn], mapping: NumberColumn | None
    ) -> None:
        self._dataset, self._columns, self._mapping = dataset, columns, mapping
        self._format = dataset.format
        self._in_python = self._format["type"] is None
        self.layout = ("arrow", self._in_python, *((name, column.kind) for name, column in columns.items()))

    def take(self, indices: I64) -> dict[str, Any]:
        """Return a batch of columns; without a format a list is a column for each place, as collating makes of it."""
        if self._dataset.format != self._format:
            self._open_again()
        rows = np.ascontiguousarray(indices if self._mapping is None else self._mapping.take(indices), dtype=np.int64)
        batch: dict[str, Any] = {}
        for name, column in self._columns.items():
            found = column.take(rows)
            in_places = self._in_python and column.is_list
            batch[name] = list(np.ascontiguousarray(np.transpose(found))) if in_places else found
        return batch

    def _open_again(self) -> None:
        """Follow ``set_format``, which changes a dataset in its place."""
        again = opened(self._dataset)
        if again is None:
            raise SourceError(
                f"the format of a dataset became {self._dataset.format['type']!r} while it was read from: expected "
                "none, numpy or torch. Give the dataset its format first, then make the loader."
            )
        vars(self).update(vars(again))

    def is_same(self, rows: I64) -> bool:
        """Say whether rows are those that the dataset gives itself."""
        table = rows if self._mapping is None else self._mapping.take(rows)
        for number, theirs in enumerate(self._dataset.__getitems__(rows.tolist())):
            ours = {name: column.take(table[number : number + 1])[0] for name, column in self._columns.items()}
            if list(ours) != list(theirs) or not all(_is_equal(ours[name], theirs[name]) for name in ours):
                return False
        return True


def opened(dataset: Any) -> ArrowRows | None:
    """Return the way to read a Hugging Face dataset from its buffers; None where it is read as ever."""
    chosen, table = dataset.format, dataset.data.table
    kind, names = chosen["type"], table.column_names
    wanted = [name for name in names if name in set(chosen["columns"])]
    mixed = chosen["output_all_columns"] and len(wanted) < len(names)
    if kind not in (None, "numpy", "torch") or chosen["format_kwargs"] or mixed or not wanted or not len(dataset):
        return None
    columns = {name: _column(table.column(name), dataset.features[name], kind) for name in wanted}
    mapping = getattr(dataset, "_indices", None)  # no public name; were it another, the eight rows would differ
    rows = None if mapping is None else _numbers(mapping.column(0), mapping.column(0).type, np.dtype("i8"))
    if None in columns.values() or (mapping is not None and rows is None):
        return None
    found = ArrowRows(dataset, columns, rows)  # type: ignore[arg-type]  # none of them is None
    return found if found.is_same(np.linspace(0, len(dataset) - 1, _COMPARED).astype(np.int64)) else None


def _column(column: pa.ChunkedArray, feature: Any, kind: str | None) -> NumberColumn | TextColumn | None:
    """Return how a column is read; None where it is not taken."""
    inside = getattr(feature, "feature", None) if is_a(feature, *_LISTS) else feature
    stored = column.type.value_type if is_a(feature, *_LISTS) and _is_list(column.type) else column.type
    if not is_a(inside, *_FEATURES) or any(chunk.null_count for chunk in column.chunks):
        return None
    column.validate()  # that buffers are long enough: opening a file does not look
    if _is_text(column.type):
        return TextColumn(column, in_numpy=kind == "numpy", ends_at_nul=kind == "torch")
    if stored not in _KINDS or (stored == pa.uint64() and kind != "torch"):
        return None
    floating = np.dtype("f8" if kind is None else "f4")
    targets = {"b": np.dtype(bool), "i": np.dtype("i8"), "u": np.dtype("i8"), "f": floating}
    return _numbers(column, stored, targets[_KINDS[stored].kind])


def _numbers(column: pa.ChunkedArray, kind: pa.DataType, dtype: np.dtype[Any]) -> NumberColumn | None:
    if _is_list(column.type) and any(chunk.values.null_count for chunk in column.chunks):
        return None
    return NumberColumn(column, kind, dtype)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _chunk(chunk: pa.Array) -> _Chunk:
    """Return where the values of a chunk lie."""
    kind, offsets = chunk.type, None
    values = chunk.values if _is_list(kind) else chunk
    data, first, count = values.buffers()[-1] or pa.py_buffer(b""), values.offset, len(values)
    if pa.types.is_fixed_size_list(kind):
        first, count = first + chunk.offset * kind.list_size, len(chunk) * kind.list_size
    elif _is_list(kind) or _is_text(kind):
        width = np.dtype("i8" if pa.types.is_large_list(kind) or pa.types.is_large_string(kind) else "i4")
        offsets = np.frombuffer(chunk.buffers()[1], width, len(chunk) + 1, chunk.offset * width.itemsize)
    if _is_text(kind):
        first, count = 0, data.size
    return _Chunk(data, first, count, offsets)


def _values(chunk: _Chunk, stored: np.dtype[Any], start: int, stop: int) -> NDArray[Any]:
    first, count = chunk.first + start, stop - start
    if stored.kind != "b":
        return np.frombuffer(chunk.data, stored, count, first * stored.itemsize)
    low = first >> 3
    bits = np.frombuffer(chunk.data, np.uint8, ((first + count + 7) >> 3) - low, low)
    return np.unpackbits(bits, count=(first & 7) + count, bitorder="little")[first & 7 :].astype(bool)


def _is_equal(ours: Any, theirs: Any) -> bool:
    """Compare what was read with what a dataset gave: a number, a list of numbers, or a text."""
    if isinstance(theirs, str):
        return type(ours) is type(theirs) and ours == theirs
    meant = np.asarray(theirs)
    is_same_kind = ours.dtype == meant.dtype or not ours.size  # an empty list is of no type
    return is_same_kind and np.array_equal(ours, meant, equal_nan=ours.dtype.kind == "f")
