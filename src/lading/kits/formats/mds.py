"""MDS, the shards of MosaicML Streaming: an own reader, of shards that lie on this machine, unpacked.

    index.json          shards: columns, their encodings and sizes, number of samples
    shard.00000.mds     number of samples (uint32) · where each starts, and the end (uint32) · configuration · samples
    a sample            sizes of the columns that vary (uint32 each) · the columns, one after the other

Files are mapped; a sample is decoded when it is read. ``pkl`` runs code and is refused, and so are images: read
their bytes with ``raw=("image",)``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import BadSampleError, SourceError
from lading.runtime.fields import COUNT, Fields, Origin, given, listed, nullable, shown, tuple_of
from lading.runtime.paths import local_path
from lading.source.windows import sampled_digest

_SCALARS = {
    *("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
}
# What the first byte of an array says: the bits of a number, and 0, 1 or 2 for its kind.
_VALUES = {
    bits + place: f"<{k}{bits // 8}"
    for bits in (8, 16, 32, 64)
    for place, k in enumerate("uif")
    if (bits, k) != (8, "f")
}
_SHAPES = ("u1", "<u2", "<u4", "<u8")

Decoder = Callable[[bytes], Any]


class MDSDataset:
    """The samples of a folder of MDS shards, each a dict of its columns.

    Args:
        path: The folder, with its ``index.json``.
        columns: Which columns to read; None: all.
        raw: Columns given as their bytes, whatever they encode.
    """

    random_free = True

    def __init__(self, path: str | Path, *, columns: Collection[str] | None = None, raw: Collection[str] = ()) -> None:
        self.path, self._wanted, self._raw = local_path(path), columns, frozenset(raw)
        origin = Origin(self.path / "index.json", SourceError, "The dataset is damaged; fetch it again.")
        found = origin.record(origin.read())
        self._shards = [_Shard(self.path, fields, columns, self._raw) for fields in found.records("shards")]
        self._firsts = np.cumsum([0, *(shard.samples for shard in self._shards)])
        names = {shard.names for shard in self._shards}
        if len(names) > 1:
            raise SourceError(f"{origin.file}: shards have different columns. Read them as datasets of their own.")
        self.columns = next(iter(names), ())

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} out of range [0, {len(self)})")
        number = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self._shards[number].read(index - int(self._firsts[number]), index)

    def take(self, indices: NDArray[np.int64]) -> dict[str, Any]:
        """Gather samples: a column of arrays of one shape, or of numbers, is one array, others are of objects."""
        samples = [self[i] for i in np.asarray(indices).tolist()]
        return {name: _column([sample[name] for sample in samples]) for name in self.columns}

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the content, wherever it lies."""
        shards = [sampled_digest(shard.path) for shard in self._shards]
        return {"index": sampled_digest(self.path / "index.json"), "shards": shards, "columns": list(self.columns)}

    def file_of(self, index: int) -> str:
        """Return the shard that holds a sample."""
        return str(self._shards[int(np.searchsorted(self._firsts, index, side="right")) - 1].path)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "columns": self._wanted, "raw": self._raw}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], columns=state["columns"], raw=state["raw"])  # type: ignore[misc]


class MDSDocuments:
    """A column of token ids of an MDS dataset as documents, for ``PackedRows`` and token stores.

    Args:
        dataset: The dataset, or its folder.
        column: The column: arrays of integers, or bytes.
        dtype: What the bytes are, where the column holds bytes; LLM Foundry writes ``int64`` or ``int32``.
        eod_token_id: What ends a document when it is packed.
        vocab_size: Size of the vocabulary, where known.
    """

    path = None
    random_free = True

    def __init__(
        self,
        dataset: MDSDataset | str | Path,
        column: str = "tokens",
        *,
        dtype: Any = np.int64,
        eod_token_id: int = 0,
        vocab_size: int | None = None,
    ) -> None:
        self.dataset = dataset if isinstance(dataset, MDSDataset) else MDSDataset(dataset, columns=[column])
        if column not in self.dataset.columns:
            raise SourceError(f"the dataset has no column {column!r}; it has {listed(self.dataset.columns)}.")
        self.column, self.dtype = column, np.dtype(dtype)
        self.eod_token_id, self.vocab_size = eod_token_id, vocab_size
        self._lengths: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, document: int) -> NDArray[Any]:
        """Return the tokens of a document."""
        found = self.dataset[document][self.column]
        if isinstance(found, bytes) and len(found) % self.dtype.itemsize == 0:
            return np.frombuffer(found, self.dtype)
        array = np.asarray(found)
        if isinstance(found, bytes) or array.ndim != 1 or array.dtype.kind not in "iu":
            raise SourceError(
                f"{self.dataset.file_of(document)}: sample {document} holds no ids in {self.column!r}, but "
                f"{type(found).__name__}. Choose another column, or pass dtype=."
            )
        return array

    def lengths(self) -> NDArray[np.int64]:
        """Return the number of tokens of each document; reads them once."""
        if self._lengths is None:
            self._lengths = np.array([len(self[d]) for d in range(len(self))], np.int64)
        return self._lengths

    def read(self, document: int, start: int, stop: int) -> NDArray[Any]:
        """Return a part of a document."""
        return self[document][start:stop]

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the content, wherever it lies."""
        return {**self.dataset.fingerprint(), "column": self.column, "dtype": self.dtype.str}


class _Shard:
    """One mapped file."""

    def __init__(self, folder: Path, fields: Fields, columns: Collection[str] | None, raw: frozenset[str]) -> None:
        fields.text("format", choices=("mds",))
        self.samples = fields.integer("samples", low=0, high=1 << 32)
        data = fields.record("raw_data")
        self.path = folder / data.file_name("basename")
        self._names, encodings = fields.texts("column_names"), fields.texts("column_encodings")
        self._sizes = tuple_of(nullable(COUNT))(fields, "column_sizes")
        if not len(self._names) == len(encodings) == len(self._sizes):
            fields.refuse("column_names", "as many names as encodings and sizes")
        self.names = tuple(n for n in self._names if columns is None or n in columns)
        if columns is not None and len(self.names) < len(set(columns)):
            missing = sorted(set(columns) - set(self._names))
            raise SourceError(f"{folder} has no column {listed(missing)}; it has {listed(self._names)}.")
        self._decoders = {
            name: bytes if name in raw else _decoder(encoding, name, self.path)
            for name, encoding in zip(self._names, encodings, strict=True)
            if name in self.names
        }
        self._content, self._offsets = self._mapped(data.integer("bytes", low=0), fields)

    def _mapped(self, size: int, fields: Fields) -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
        if not self.path.is_file():
            packed = given(Fields.text)(fields, "compression")
            hint = f"it is packed ({shown(packed)}): unpack the shards first" if packed else "fetch it again"
            raise SourceError(f"{self.path} is missing; {hint}. Only unpacked shards on this machine are read.")
        found = self.path.stat().st_size
        if found != size or found < 4 * (self.samples + 2):
            raise SourceError(f"{self.path} has {found} bytes, its index says {size}. It was cut off; fetch it again.")
        content = np.asarray(np.memmap(self.path, np.uint8, "r"))
        offsets = content[4 : 4 * (self.samples + 2)].view("<u4")
        if int(content[:4].view("<u4")[0]) != self.samples or (np.diff(offsets.astype(np.int64)) < 0).any():
            raise SourceError(f"{self.path} does not hold the {self.samples} samples that its index says.")
        if int(offsets[-1]) > found:
            raise SourceError(f"{self.path} points beyond its end. It is damaged; fetch it again.")
        return content, offsets

    def read(self, place: int, index: int) -> dict[str, Any]:
        """Return a sample, decoded."""
        start, stop = int(self._offsets[place]), int(self._offsets[place + 1])
        content = self._content[start:stop].tobytes()
        varying = sum(size is None for size in self._sizes)
        at, found = 4 * varying, {}
        try:
            sizes = iter(np.frombuffer(content[:at], "<u4").tolist())
            for name, size in zip(self._names, self._sizes, strict=True):
                length = next(sizes) if size is None else size
                if at + length > len(content):
                    raise ValueError(f"column {name!r} goes beyond the sample")
                if name in self._decoders:
                    found[name] = self._decoders[name](content[at : at + length])
                at += length
        except (ValueError, IndexError, KeyError, StopIteration, ArithmeticError) as error:
            raise BadSampleError(
                f"{self.path}: sample {index} cannot be decoded ({shown(str(error))}). It is damaged; fetch it again.",
                index=index,
                file=str(self.path),
            ) from error
        return {name: found[name] for name in self.names}


def _column(values: list[Any]) -> Any:
    shapes = {np.shape(value) if isinstance(value, np.ndarray | np.generic | int | float) else None for value in values}
    if len(shapes) == 1 and None not in shapes:
        return np.stack([np.asarray(value) for value in values])
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _decoder(encoding: str, name: str, path: Path) -> Decoder:
    """Return what makes a value of the bytes of a column."""
    kind, _, details = encoding.partition(":")
    if kind == "ndarray":
        return _array_decoder(details)
    if kind in _SCALARS:
        dtype = np.dtype(kind).newbyteorder("<")
        return lambda data: np.frombuffer(data, dtype)[0]
    plain: dict[str, Decoder] = {
        "bytes": bytes,
        "str": bytes.decode,
        "int": lambda data: int(np.frombuffer(data, "<i8")[0]),
        "str_int": lambda data: int(data.decode()),
        "str_float": lambda data: float(data.decode()),
        "str_decimal": lambda data: Decimal(data.decode()),
        "json": json.loads,
    }
    if kind not in plain:
        raise SourceError(
            f"{path}: column {name!r} is encoded as {shown(encoding)}, which is not decoded here"
            f"{' (it would run code)' if kind == 'pkl' else ''}. Leave it out with columns=, or take its bytes with "
            f"raw=({name!r},)."
        )
    return plain[kind]


def _array_decoder(details: str) -> Decoder:
    """Return the decoder of an array: type and shape may be in the encoding, or in every value."""
    dtype_name, _, shape_text = details.partition(":")
    fixed_dtype = np.dtype(dtype_name).newbyteorder("<") if dtype_name in _SCALARS else None
    fixed_shape = tuple(map(int, shape_text.split(","))) if shape_text else None

    def decode(data: bytes) -> NDArray[Any]:
        at, dtype, shape = 0, fixed_dtype, fixed_shape
        if dtype is None:
            dtype, at = np.dtype(_VALUES[data[0]]), 1
        if shape is None:
            axes, kind = data[at] >> 2, np.dtype(_SHAPES[data[at] & 3])
            stop = at + 1 + axes * kind.itemsize
            shape, at = tuple(np.frombuffer(data[at + 1 : stop], kind).tolist()), stop
        return np.frombuffer(data[at:], dtype).reshape(shape)

    return decode
