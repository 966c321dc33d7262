"""Rows as the tail holds them: a struct each, and after the structs the texts that they speak of.

    table    rows (u32) · struct · struct · ... · texts of row 0 · texts of row 1 · ...
    struct   a bit for each column, set where the row has a value (u16) · the columns, little-endian, side by side

A text is in the struct by its length in bytes (u32), a map of numbers by the bytes of its entries: length of the key
(u32), key, value (f64). What is not there is 0. Written without Arrow, whose import takes longer than a first batch.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.identity import Bill
from lading.ledger.tables import FLOAT32, FORMATS, INT32, INT64, MAP, TEXT, TIME, check_range, check_words
from lading.runtime import compiled

_CODES = {INT64: "q", INT32: "i", FLOAT32: "f", TIME: "q", TEXT: "I", MAP: "I"}
_COUNT, _NUMBER, _STEP = struct.Struct("<I"), struct.Struct("<d"), struct.Struct("<q")
_STEP_AT = 2
_LARGEST_FLOAT32 = 3.4028235677973366e38  # from here on a float of 4 bytes is infinite
_CONTINUES = 0b1100_0000, 0b1000_0000  # bytes inside a character of UTF-8

Row = bytes  # a struct, and after it the texts that it speaks of


class TextBytes(NamedTuple):
    """A column of texts: their bytes side by side, and where each begins, the end of the last included."""

    content: NDArray[np.uint8]
    offsets: NDArray[np.int64]


class Maps(NamedTuple):
    """A column of maps: their entries side by side, and where those of each row begin, the end included."""

    keys: TextBytes
    values: NDArray[np.float64]
    offsets: NDArray[np.int64]


class RowBytes(NamedTuple):
    """Rows of one table.

    Attributes:
        rows: How many.
        structs: A struct a row.
        texts: What the structs speak of.
    """

    rows: int
    structs: bytes
    texts: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the rows as the tail holds them."""
        return b"".join((_COUNT.pack(self.rows), self.structs, self.texts))

    @property
    def first_step(self) -> int:
        """The step of the first row."""
        return int(_STEP.unpack_from(self.structs, _STEP_AT)[0])

    @property
    def last_step(self) -> int:
        """The step of the last row."""
        return int(_STEP.unpack_from(self.structs, len(self.structs) - len(self.structs) // self.rows + _STEP_AT)[0])


def step_of(row: Row) -> int:
    """Return the step of a row."""
    return int(_STEP.unpack_from(row, _STEP_AT)[0])


def joined(pieces: Iterable[RowBytes]) -> RowBytes:
    """Return some rows as one piece."""
    rows, structs, texts = zip(*pieces, strict=True)
    return RowBytes(sum(rows), b"".join(structs), b"".join(texts))


class Layout:
    """How the rows of one table are packed.

    Args:
        name: The table.
    """

    def __init__(self, name: str) -> None:
        columns = FORMATS[name].columns
        self._name, self._kinds = name, tuple(columns.values())
        codes = [_CODES[kind] for kind in self._kinds]
        self._codes, self._struct = "".join(codes).encode(), struct.Struct("<H" + "".join(codes))
        self._bits = {column: 1 << place for place, column in enumerate(columns)}
        self._every = (1 << len(columns)) - 1
        self._varying = [(p, kind == TEXT) for p, kind in enumerate(self._kinds) if kind in (TEXT, MAP)]
        self._dtype = np.dtype([("present", "<u2"), *((c, f"<{k}") for c, k in zip(columns, codes, strict=True))])
        ranges, may_miss = FORMATS[name].ranges, FORMATS[name].may_miss
        bounds = [ranges.get(column, (-1 << 63, (1 << 63) - 1)) for column in columns]
        self._lows, self._highs = np.array(bounds, np.int64).T.copy()
        self._needed = sum(self._bits[column] for column in ranges if column not in may_miss)

    def pack(self, values: Sequence[Any]) -> Row:
        """Return a row of its values in the columns' order."""
        if compiled.enabled():
            row: Row | None = compiled.kernels.pack_row(self._codes, values)
            if row is not None:
                return row
        given, present, texts = list(values), self._every, b""
        for place, value in enumerate(given):
            if value is None:
                given[place] = 0
                present ^= 1 << place
        for place, is_text in self._varying:
            if given[place]:
                content = given[place].encode() if is_text else _entries(given[place])
                given[place] = len(content)
                texts += content
            else:
                given[place] = 0
        return self._packed(present, given) + texts

    def pack_columns(self, rows: int, columns: tuple[Any, ...]) -> list[Row]:
        """Return rows, as a rule side by side as one.

        Args:
            rows: How many.
            columns: The columns, in order: numbers in an array (NaN where there is none), a list of values and None,
                or what all rows have.
        """
        if compiled.enabled():
            found: Row | None = compiled.kernels.pack_columns(self._codes, rows, columns)
            if found is not None:
                return [found]
        return [self.pack(row) for row in rows_of(rows, columns)]

    def apart(self, row: Row) -> list[Row]:
        """Return rows that lie side by side one by one."""
        size = self._struct.size
        return [row] if self._varying else [row[at : at + size] for at in range(0, len(row), size)]

    def _packed(self, present: int, values: Sequence[Any]) -> bytes:
        try:
            return self._struct.pack(present, *values)
        except OverflowError:
            return self._struct.pack(present, *(_narrow(v) if type(v) is float else v for v in values))

    def of_rows(self, rows: Sequence[Row]) -> RowBytes:
        """Return rows, or rows without texts side by side, as one piece; refuse values that no reader takes."""
        size, texts = self._struct.size, b""
        if self._varying:
            texts, rows = b"".join([row[size:] for row in rows]), [row[:size] for row in rows]
        structs = b"".join(rows)
        found = RowBytes(len(structs) // size, structs, texts)
        checked = structs, self._codes, self._lows, self._highs, self._needed
        if self._varying or not compiled.enabled() or not compiled.kernels.check_rows(*checked):
            self.columns(found)  # says what is wrong
        return found

    def of_columns(self, columns: Mapping[str, NDArray[Any]]) -> RowBytes:
        """Return rows of numbers, column by column, those left out not there; refuse what a column does not hold."""
        out = np.zeros(len(columns["step"]), self._dtype)
        for name, values in columns.items():
            out[name] = values
            if values.dtype != self._dtype[name] and not np.array_equal(
                out[name], values, equal_nan=values.dtype.kind == "f"
            ):
                raise ValueError(f"a row has {name} beyond {self._dtype[name].itemsize} bytes")
            out["present"] |= np.uint16(self._bits[name])
        return RowBytes(len(out), out.tobytes())

    def from_bytes(self, content: bytes) -> RowBytes:
        """Return the rows of a table in a tail, as they are; ``check`` says whether a ledger writes such ones."""
        if len(content) < _COUNT.size:
            raise ValueError(f"{len(content)} bytes are no rows")
        rows = _COUNT.unpack_from(content)[0]
        end = _COUNT.size + rows * self._struct.size
        if not rows or end > len(content):
            raise ValueError(f"{len(content)} bytes do not hold {rows} rows")
        return RowBytes(rows, content[_COUNT.size : end], content[end:])

    def check(self, pieces: Sequence[RowBytes]) -> None:
        """Refuse pieces of which one is not what a ledger writes; a thousand take little longer than one."""
        whole = joined(pieces)
        self.columns(whole)
        table, names = np.frombuffer(whole.structs, self._dtype), [*self._bits]
        lengths = sum(
            (table[names[place]].astype(np.int64) for place, _ in self._varying), np.zeros(whole.rows, np.int64)
        )
        ends = lengths.cumsum()[np.cumsum([piece.rows for piece in pieces]) - 1]
        if not np.array_equal(ends, np.cumsum([len(piece.texts) for piece in pieces])):
            raise ValueError("a piece has other texts than its rows say")

    def columns(self, found: RowBytes) -> dict[str, tuple[Any, NDArray[np.bool_]]]:
        """Return each column (array, texts or maps) and which rows have it; refuse what no ledger writes."""
        table = np.frombuffer(found.structs, self._dtype, count=found.rows)
        present = np.ascontiguousarray(table["present"])  # side by side a column is looked at several times as quickly
        if int(np.bitwise_or.reduce(present)) > self._every:
            raise ValueError("a row has a column that there is none of")
        are_alike = bool((present == present[:1]).all())  # as a rule, of names
        places = dict(zip(self._bits, self._kinds, strict=True))
        texts = self._texts(table, found.texts)
        columns: dict[str, tuple[Any, NDArray[np.bool_]]] = {}
        for column, kind in places.items():
            values, bit = np.ascontiguousarray(table[column]), self._bits[column]
            if are_alike:
                known = np.full(found.rows, bool(int(present[0]) & bit))
            else:
                known = (present & np.uint16(bit)) != 0
            if not known.all() and values[~known].view(f"u{values.itemsize}").any():
                raise ValueError(f"a row has no {column}, and a value of it")
            columns[column] = (texts[column] if kind in (TEXT, MAP) else values), known
        self._check(columns)
        return columns

    def _texts(self, table: NDArray[Any], content: bytes) -> dict[str, TextBytes | Maps]:
        names = [name for name, kind in zip(self._bits, self._kinds, strict=True) if kind in (TEXT, MAP)]
        if not names:
            if content:
                raise ValueError("texts that no row speaks of")
            return {}
        lengths = np.stack([table[name] for name in names], axis=1).astype(np.int64)
        ends = lengths.cumsum()
        if ends[-1] != len(content):
            raise ValueError(f"{len(content)} bytes of texts, expected {ends[-1]}")
        starts = (ends - lengths.reshape(-1)).reshape(lengths.shape)
        found: dict[str, TextBytes | Maps] = {}
        for place, name in enumerate(names):
            read = _strings if self._varying[place][1] else _maps
            found[name] = read(content, starts[:, place], lengths[:, place])
        return found

    def _check(self, columns: Mapping[str, tuple[Any, NDArray[np.bool_]]]) -> None:
        for column in FORMATS[self._name].ranges:
            check_range(self._name, column, *columns[column])
        for column in FORMATS[self._name].words:
            (content, offsets), known = columns[column]
            if not known.all():
                raise ValueError(f"a row has no {column}")
            if FORMATS[self._name].words[column] is not None:
                text, edges = content.tobytes(), offsets.tolist()
                found = {text[a:b] for a, b in itertools.pairwise(edges)}
                check_words(self._name, column, {word.decode() for word in found})


@functools.cache
def layout(name: str) -> Layout:
    """Return how the rows of a table are packed."""
    return Layout(name)


def rows_of(rows: int, columns: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Return so many rows of columns as ``Layout.pack_columns`` takes them."""
    lists = [c if isinstance(c, list) else [c] * rows for c in map(_listed, columns)]
    return zip(*lists, strict=True)


def _listed(column: Any) -> Any:
    if not isinstance(column, np.ndarray):
        return column
    return [None if number != number else number for number in column.tolist()]  # NaN


def packed_names(bill: Bill, content: NDArray[np.uint64] | None) -> bytes:
    """Return the rows of ``samples`` of a batch, side by side; padding has none."""
    if compiled.enabled():
        named = bill.slots, bill.dataset_idx, bill.idx, content, bill.is_padding
        rows: bytes | None = compiled.kernels.pack_names(bill.step, *named)
        if rows is not None:
            return rows
    real = bill.is_real
    columns: dict[str, NDArray[Any]] = {
        "slot": bill.slots[real],
        "dataset": bill.dataset_idx[real],
        "index": bill.idx[real],
    }
    columns |= {"step": np.full(bill.num_samples, bill.step)}
    columns |= {} if content is None else {"content": content[real].view(np.int64)}
    return layout("samples").of_columns(columns).structs


def _narrow(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= _LARGEST_FLOAT32 else value


def _entries(numbers: Iterable[tuple[str, float]]) -> bytes:
    keys = [(key.encode(), value) for key, value in numbers]
    return b"".join(part for key, value in keys for part in (_COUNT.pack(len(key)), key, _NUMBER.pack(value)))


def _strings(content: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> TextBytes:
    every = np.frombuffer(content, np.uint8)
    mask, inside = _CONTINUES
    if ((every[starts[lengths > 0]] & mask) == inside).any():
        raise ValueError("a text begins inside a character")
    offsets = np.concatenate([[0], lengths.cumsum()])
    found = every[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
    found.tobytes().decode()  # refuses what is no UTF-8
    return TextBytes(found, offsets)


def _maps(content: bytes, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Maps:
    keys: list[bytes] = []
    values: list[float] = []
    counts = np.zeros(len(starts), np.int64)
    for row in np.flatnonzero(lengths).tolist():
        at, before = int(starts[row]), len(keys)
        end = at + int(lengths[row])
        while at < end:
            size = _COUNT.unpack_from(content, at)[0] if at + _COUNT.size <= end else len(content)
            at += _COUNT.size + size + _NUMBER.size
            if at > end:
                raise ValueError(f"row {row} has a map that is cut off")
            keys.append(content[at - size - _NUMBER.size : at - _NUMBER.size])
            values.append(_NUMBER.unpack_from(content, at - _NUMBER.size)[0])
        counts[row] = len(keys) - before
    sizes = np.array([len(key) for key in keys], np.int64)
    texts = _strings(b"".join(keys), sizes.cumsum() - sizes, sizes)
    return Maps(texts, np.array(values, np.float64), np.concatenate([[0], counts.cumsum()]))
