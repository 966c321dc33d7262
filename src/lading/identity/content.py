"""One hash of content: of a sample, and of every row of a batch at once.

    sample  {"x": [1.5, 2.5], "y": 7}              ──▶ content_hash     16 hex digits
    batch   {"x": [B, 2] float32, "y": [B] int64}  ──▶ content_hashes   uint64 [B]

The same definition serves both: a sample and the row that a plain collate makes of it have the same hash, in any
framework and on every machine. Structure counts: type, shape, length and name of every part go in, so that no two
structures run into one. One changed byte in one row changes that row's hash and no other.

Columns of numbers are hashed whole, without a loop over rows; strings and objects one by one. ``CONTENT_VERSION`` is
part of every hash: a change of the definition is a change of the version.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.bill import NAME_COLUMNS
from lading.identity.hashing import fold, fold_int, key64, mix64, text64
from lading.runtime import compiled
from lading.runtime.arrays import host

CONTENT_VERSION = 2

U64 = NDArray[np.uint64]
_WORDS = key64("content") | 1
_INT64 = range(-(1 << 63), 1 << 63)
_LENT = "biufc"  # kinds of numbers whose memory NumPy lends; of times it does not


def content_hash(sample: Any) -> str:
    """Return 16 hex digits that stand for a sample's content.

    >>> content_hash({"x": np.array([1, 2])}) == content_hash({"x": np.array([1, 2])})
    True
    >>> content_hash([1, 2]) == content_hash([2, 1])
    False

    Raises:
        SourceError: A part is of a type whose bytes mean nothing outside this process.
    """
    return f"{int(_of_sample(sample)[0]):016x}"


def content_hashes(batch: Any, rows: int) -> U64:
    """Return one hash for each row of a batch; the columns that name its rows do not count.

    Args:
        batch: A dict, tuple, list or dataclass of columns, nested as they may be, or one column.
        rows: Rows of the batch.

    Raises:
        SourceError: A column has another number of rows, or holds what has no content hash.
    """
    kind: Any = type(batch)
    if not _is_array(kind) and isinstance(batch, Mapping):
        named = {str(name): column for name, column in batch.items() if name not in NAME_COLUMNS}
        return _of_mapping({name: _of_column(column, rows, name) for name, column in named.items()}, rows)
    return _of_column(batch, rows, "")


def sample_hashes(samples: Iterable[Any]) -> U64:
    """Return the hash of each sample: what ``joined_hash`` makes one of, wherever parts of them were worked out."""
    return _of_items(list(samples))


def joined_hash(parts: Iterable[U64]) -> str:
    """Return 16 hex digits that stand for the content of samples in their order, of hashes worked out in parts."""
    total = key64(CONTENT_VERSION, "samples")
    for part in parts:
        for value in part.tolist():
            total = fold_int(total, value)
    return f"{total:016x}"


def _of_sample(part: Any) -> U64:
    """Return the hash of one sample, or of a part of it, as a column of one row."""
    if isinstance(part, str):
        return _of_bytes("string", part.encode("utf-8", "surrogatepass"))
    if isinstance(part, bytes | bytearray | memoryview):
        return _of_bytes("bytes", bytes(part))
    if part is None:
        return _of_bytes("none", b"")
    if isinstance(part, int) and part not in _INT64:
        return _of_bytes("integer", str(part).encode())
    if (named := _named(part)) is not None:
        return _of_mapping({name: _of_sample(value) for name, value in named.items()}, 1)
    if isinstance(part, list | tuple):
        return _of_sequence([_of_sample(item) for item in part], 1)
    array = _as_array(part)
    if array.dtype.kind in "US":
        return _of_sample(array.item() if array.ndim == 0 else array.tolist())
    return _of_numbers(array[np.newaxis])


def _of_column(column: Any, rows: int, name: str) -> U64:
    """Return the hash of each row of a column, or of columns side by side."""
    kind: Any = type(column)
    if _is_array(kind):
        array = _as_array(column)
        _check_rows(len(array) if array.ndim else -1, rows, name)
        return _of_items(array.tolist()) if array.dtype.kind in "US" else _of_numbers(array)
    if (named := _named(column)) is not None:
        return _of_mapping({key: _of_column(value, rows, key) for key, value in named.items()}, rows)
    if _are_columns(column, rows):
        parts = [_of_column(item, rows, f"{name}[{place}]") for place, item in enumerate(column)]
        return _of_sequence(parts, rows)
    _check_rows(len(column), rows, name)
    return _of_items(column)


@functools.lru_cache(256)
def _is_array(kind: type) -> bool:
    """Say whether a column of a type is one array, and no mapping, dataclass, list or tuple."""
    return not issubclass(kind, list | tuple | Mapping) and not dataclasses.is_dataclass(kind)


def _named(part: Any) -> dict[str, Any] | None:
    if isinstance(part, Mapping):
        return {str(name): value for name, value in part.items()}
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        return {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    return None


def _are_columns(values: Sequence[Any], rows: int) -> bool:
    """Say whether a list holds columns of so many rows each, and not one item for each row."""
    return bool(values) and all(_is_column(value, rows) for value in values)


def _is_column(value: Any, rows: int) -> bool:
    if isinstance(value, str | bytes):
        return False
    if isinstance(value, list | tuple) and _are_columns(value, rows):
        return True
    try:
        return _named(value) is not None or len(value) == rows
    except TypeError:
        return False


def _of_items(items: Sequence[Any]) -> U64:
    return np.concatenate([np.empty(0, np.uint64), *(_of_sample(item) for item in items)])


def _of_mapping(parts: Mapping[str, U64], rows: int) -> U64:
    return folded(_begin("mapping", len(parts), rows), [(_key(name), parts[name]) for name in sorted(parts)])


def _of_sequence(parts: Sequence[U64], rows: int) -> U64:
    return folded(_begin("sequence", len(parts), rows), [(None, part) for part in parts])


def folded(total: U64, parts: Iterable[tuple[int | None, U64]]) -> U64:
    """Add parts to the hash of each row, each after its name where it has one."""
    for name, part in parts:
        if compiled.enabled():
            compiled.kernels.fold_rows(total, name, part)
        else:
            total = total if name is None else fold(total, np.full(len(total), name, dtype=np.uint64))
            total = fold(total, part)
    return total


def digest_of_content(position: int, slots: NDArray[Any], content: U64, is_left_out: NDArray[np.bool_]) -> int:
    """Return the sum of the content of rows that are not left out, each bound to its place: it adds like digests."""
    if compiled.enabled():
        found: int = compiled.kernels.digest_of_content(position, slots, content, is_left_out)
        return found
    kept = ~is_left_out
    places = (position + slots[kept].astype(np.int64)).astype(np.uint64)
    return int(fold(places, content[kept]).sum(dtype=np.uint64))


def _of_bytes(kind: str, content: bytes) -> U64:
    word = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
    return fold(_begin(kind, len(content), 1), np.full(1, word, dtype=np.uint64))


def _of_numbers(array: NDArray[Any]) -> U64:
    rows = len(array)
    dtype, kind, width = _layout(array.dtype, array.shape[1:], bool(array.size))
    content = np.ascontiguousarray(array, dtype=dtype) if width else np.empty(0, np.uint8)
    if compiled.enabled():
        out = np.empty(rows, np.uint64)
        lent = content if dtype.kind in _LENT else content.reshape(-1).view(np.uint8)
        compiled.kernels.hash_rows(lent, _WORDS, _key(kind, width), out)
        return out
    content = content.reshape(-1).view(np.uint8)
    padded = np.zeros((rows, -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = content.reshape(rows, width)
    words = padded.view(np.dtype("<u8")).astype(np.uint64, copy=False)
    keys = mix64(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(_WORDS))
    sums = mix64(words ^ keys).sum(axis=1, dtype=np.uint64)
    return fold(_begin(kind, width, rows), sums)


@functools.lru_cache(256)
def _layout(dtype: np.dtype[Any], shape: tuple[int, ...], has_bytes: bool) -> tuple[np.dtype[Any], str, int]:
    """Return the type of the bytes that are hashed, what a row is called in its hash, and the bytes of a row."""
    stored = dtype.newbyteorder("<")
    return stored, f"{stored.str}{shape}", stored.itemsize * math.prod(shape) * has_bytes


def _begin(kind: str, size: int, rows: int) -> U64:
    found = np.empty(rows, dtype=np.uint64)
    found.fill(_key(kind, size))
    return found


@functools.lru_cache(1024)
def _key(text: str, size: int | None = None) -> int:
    """Return the hash of a name, or of a kind of content and its size."""
    return text64(text) if size is None else key64(CONTENT_VERSION, text, size)


def _as_array(part: Any) -> NDArray[Any]:
    try:
        array = host(part)
    except (TypeError, ValueError) as error:
        raise _unknown(part) from error
    if array.dtype.hasobject:
        raise _unknown(part)
    return array


def _check_rows(found: int, rows: int, name: str) -> None:
    if found != rows:
        raise SourceError(
            f"column {name!r} of the batch has {found if found >= 0 else 'no'} rows, its bill has {rows}: the content "
            "of each sample cannot be determined. Pass the batch as it came from the loader."
        )


def _unknown(part: Any) -> SourceError:
    return SourceError(
        f"a sample holds a {type(part).__name__}, which has no content hash: expected tensors, arrays, numbers, "
        "strings, bytes, or dicts, lists and dataclasses of them. Convert it. Pass ids=[...] where it is to be named."
    )
