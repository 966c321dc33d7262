"""Arrow without pandas, and its columns as NumPy without Arrow's functions, which take 30 ms to open.

The first array that pyarrow makes of Python values imports pandas, where it is
installed, to see whether the values are a Series, and dateutil for spans of
months: a third of a second for programs that have nothing to do with either.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


def without_pandas() -> None:
    """Let pyarrow find no pandas in this process, unless it is imported already; ``to_pandas`` will not work."""
    if "pandas" in sys.modules:
        return
    import pyarrow  # here: what asks nothing opens no Arrow

    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pyarrow.array([0])
    finally:
        sys.meta_path.remove(absent)


class _Absent:
    """A finder that knows of two packages that they are not there."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Refuse pandas and dateutil; say nothing of others."""
        if name in ("pandas", "dateutil"):
            raise ModuleNotFoundError(f"{name} is left out of this process", name=name)
        return None


def numbers(column: pa.ChunkedArray, dtype: type[Any] | None = None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return a column of integers, floats or timestamps, and which of them are known.

    Args:
        dtype: What the numbers become; None: as they are stored.
    """
    kind = _stored_as(column.type)
    values = [np.empty(0, dtype=kind)]
    for chunk in filter(len, column.chunks):
        offset = chunk.offset * kind.itemsize
        values.append(np.frombuffer(chunk.buffers()[1], kind, count=len(chunk), offset=offset))
    return np.concatenate(values, dtype=dtype), known_values(column)


def known_values(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Say of each value of a column whether it is there."""
    if not column.null_count:
        return np.ones(len(column), dtype=bool)
    known = [np.empty(0, dtype=bool)]
    for chunk in filter(len, column.chunks):
        bits = chunk.buffers()[0]
        known.append(np.ones(len(chunk), dtype=bool) if bits is None else _bits(bits, chunk.offset, len(chunk)))
    return np.concatenate(known)


def texts(column: pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of a column of strings, and where each begins in them, the end of the last included."""
    if not len(column):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    strings = column.combine_chunks()
    return np.frombuffer(strings.buffers()[2] or b"", np.uint8), offsets_of(strings)


def offsets_of(array: pa.Array) -> NDArray[np.int64]:
    """Return where each string or map of an array begins, the end of the last included; NumPy's way imports pandas."""
    offsets = np.frombuffer(array.buffers()[1], np.int32, count=len(array) + 1, offset=array.offset * 4)
    return offsets.astype(np.int64)


def _bits(bits: pa.Buffer, first: int, count: int) -> NDArray[np.bool_]:
    every = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little", count=first + count)
    return every[first:].astype(bool)


def column(values: NDArray[Any], kind: pa.DataType, known: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers, all known or those so marked, as a column, without what ``pyarrow.array`` imports for NumPy's."""
    import pyarrow as pa  # here: what asks nothing opens no Arrow

    stored = np.ascontiguousarray(values, dtype=_stored_as(kind))
    bits = None if known is None or known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(stored), [bits, pa.py_buffer(stored)])


def _stored_as(kind: pa.DataType) -> np.dtype[Any]:
    """Return how integers, floats or timestamps are stored; the answer of pyarrow 20 imports pandas."""
    return np.dtype(f"{'f' if str(kind) in ('float', 'double') else 'i'}{kind.bit_width // 8}")


def words_of(column: pa.ChunkedArray, word: str) -> NDArray[np.bool_]:
    """Say of each string of a column, plain or by the codes of a dictionary, whether it is a word."""
    import pyarrow as pa  # here: what asks nothing opens no Arrow

    found = [np.empty(0, dtype=bool)]
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            same = np.array([value == word for value in chunk.dictionary.to_pylist()] + [False])
            codes = chunk.indices.to_numpy(zero_copy_only=False)
            found.append(same[np.where(np.isnan(codes), -1, codes).astype(np.int64) if chunk.null_count else codes])
        else:
            found.append(_equal(pa.chunked_array([chunk]), word.encode()))
    return np.concatenate(found)


def _equal(column: pa.ChunkedArray, word: bytes) -> NDArray[np.bool_]:
    content, offsets = texts(column)
    equal: NDArray[np.bool_] = (np.diff(offsets) == len(word)) & known_values(column)
    places = offsets[:-1][equal][:, None] + np.arange(len(word))
    equal[equal] = (content[places] == np.frombuffer(word, np.uint8)).all(axis=1)
    return equal
