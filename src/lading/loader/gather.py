"""Read the rows of a bill from any sources: all at once where samples are rows of arrays, else source by source.

    RowGather   addresses of every column of every source ─┐
                source and row of each row of a bill      ─┼─▶ one compiled loop ─▶ columns of the batch
                memory that is unused                     ─┘

    gather      bill    source_idx  0 1 1 0        source 0 ─▶ rows 0, 3
                        rows        7 2 9 4        source 1 ─▶ rows 1, 2        scattered into one batch

Both give the same. A batch of 1 MB or more is copied by two threads, half each, but in workers, which share the cores.
No framework is imported here: what differs between torch and NumPy is asked of ``Arrays``, which travels to workers.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import Bill
from lading.identity.hashing import key64, keys64
from lading.runtime import compiled
from lading.runtime.arrays import is_mapped, is_texts, read_rows_ahead
from lading.runtime.processes import helper
from lading.source import columns as buffers
from lading.source.counting import check_columns, check_samples
from lading.source.reader import Reader, split_by_source

U64 = NDArray[np.uint64]
Part = tuple[int, NDArray[np.int64], Any]
"""Number of the source, rows of the batch, and the columns of these rows."""


class Arrays(Protocol):
    """The arrays of a face. It is picklable, and the same in every process.

    A column is an array with a row per sample, or anything else with a length (then it is mixed as a list).

    Attributes:
        memory: Gives unused memory for large arrays.
    """

    memory: buffers.Memory

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


_Layout = tuple[Any, ...]
SHARED_BYTES = 1 << 20  # of a batch; less is copied before another thread is awake


class RowGather:
    """The arrays of all sources, ready to be gathered from.

    Args:
        sources: Of each source its columns; all have the same dtypes and row shapes.
        layout: The container they come in: ``one``, ``tuple``, or ``dict`` and its keys.
        arrays: The face's arrays.
    """

    def __init__(self, sources: Sequence[Sequence[Any]], layout: _Layout, arrays: Arrays) -> None:
        self._layout, self._arrays = layout, arrays
        self._columns = [column for columns in sources for column in columns]  # keeps the memory alive
        likes = [arrays.columns(_first_row(column)) for column in sources[0]]
        self._moving = [column for column in self._columns if hasattr(column, "data_ptr")]  # a tensor may be resized
        self._found = [column.data_ptr() for column in self._moving]
        self._addresses = np.array([[_address(column) for column in columns] for columns in sources], dtype=np.int64)
        mapped = [[column for column in columns if is_mapped(column)] for columns in sources]
        self._mapped = mapped if any(mapped) else []
        self._lengths = np.array([len(columns[0]) for columns in sources], dtype=np.int64)
        self._sizes = np.array([_row_bytes(column) for column in sources[0]], dtype=np.int64)
        self._row_bytes = int(self._sizes.sum())
        self._address_of = getattr(type(likes[0]), "data_ptr", _address)
        self._made = [
            (like, _same_bytes(like), tuple(like.shape[1:]), size, buffers.Buffers())
            for like, size in zip(likes, self._sizes.tolist(), strict=True)
        ]

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

    def batch(self, bill: Bill, *, alone: bool = True) -> Any:
        """Return the batch of a bill; a large one may be copied together with another thread."""
        if [column.data_ptr() for column in self._moving] != self._found:
            raise RuntimeError("a tensor of a dataset was resized while it was read from.")
        rows = bill.rows
        if self._mapped:
            self._read_ahead(bill)
        out, targets = self._allocated(len(rows))
        is_shared = not alone and len(rows) * self._row_bytes >= SHARED_BYTES
        wrong = (self._copied_by_two if is_shared else self._copied)(bill.source_idx, rows, targets, out)
        if wrong >= 0:
            raise IndexError(f"row {rows[wrong]} of {self._lengths[bill.source_idx[wrong]]} rows")
        container, *keys = self._layout
        if container == "one":
            return out[0]
        return dict(zip(keys, out, strict=True)) if container == "dict" else self._arrays.columns(tuple(out))

    def _copied(
        self, sources: NDArray[np.int32], rows: NDArray[np.int64], targets: NDArray[np.int64], out: list[Any]
    ) -> int:
        """Copy rows to addresses; return the first that its source does not have, or -1.

        The memory behind the addresses is ``out``: the copy holds it, or the next batch could get it after a Ctrl-C.
        """
        found: int = compiled.kernels.gather(self._addresses, self._lengths, self._sizes, sources, rows, targets)
        return found

    def _copied_by_two(
        self, sources: NDArray[np.int32], rows: NDArray[np.int64], targets: NDArray[np.int64], out: list[Any]
    ) -> int:
        """``_copied``, the second half by another thread; here, too, where that has not begun by then."""
        half = len(rows) // 2
        rest = functools.partial(self._copied, sources[half:], rows[half:], targets + half * self._sizes, out)
        try:
            other = helper().submit(rest)
        except RuntimeError:  # the main thread has ended, and only threads that run go on
            return self._copied(sources, rows, targets, out)
        wrong = self._copied(sources[:half], rows[:half], targets, out)
        found = rest() if other.cancel() else other.result()
        return wrong if wrong >= 0 or found < 0 else half + found

    def _read_ahead(self, bill: Bill) -> None:
        """Announce the rows of mapped files."""
        for number, places in split_by_source(bill.source_idx, len(self._mapped)):
            for column in self._mapped[number]:
                read_rows_ahead(column, bill.rows[places])

    def _allocated(self, count: int) -> tuple[list[Any], Any]:
        """Return empty columns for a batch, and their addresses; large ones are over memory that is used again."""
        over, out, addresses, unused = self._arrays.over, [], [], self._arrays.memory
        for like, dtype, shape, size, shelf in self._made:
            if count * size < buffers.MIN_BYTES:
                memory = np.empty((count, *shape), dtype)
            elif unused.lend is not None:  # made where it is sent
                memory = unused.of(count * size).view(dtype).reshape(count, *shape)
            else:
                memory = shelf.array((count, *shape), dtype)
            column = over(memory, like)
            out.append(column)
            addresses.append(self._address_of(column))
        return out, np.array(addresses, dtype=np.int64)


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
