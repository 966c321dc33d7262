"""Megatron's indexed datasets, both ways: documents of tokens in ``NAME.bin``, where they lie in ``NAME.idx``.

    .idx   MMIDIDX · version 1 · type of tokens · sequences · entries     little-endian
           lengths of the sequences (int32) · where each starts in .bin, in bytes (int64)
           the sequence at which each document starts, and the end (int64)

What Megatron calls a sequence is a document here, unless ``by="document"``: then its sequences are read as one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.runtime.files import named_aside
from lading.runtime.paths import local_path
from lading.source.windows import sampled_digest

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_CODES = {np.dtype(name): code for code, name in _DTYPES.items()}
_MOST = 1 << 48


class MegatronDocuments:
    """The documents of a Megatron dataset, memory-mapped; ``PackedRows`` packs them, ``Windows`` takes ``tokens``.

    Args:
        path: The dataset: its name without ``.bin`` and ``.idx``, or one of the two files.
        by: What a document is: a ``"sequence"`` (as ``IndexedDataset[i]`` has it), or a ``"document"`` of several.
        eod_token_id: What ends a document when it is packed. Megatron's own (``--append-eod``) is in the tokens.
        vocab_size: Size of the vocabulary, where known.
    """

    random_free = True

    def __init__(
        self, path: str | Path, *, by: str = "sequence", eod_token_id: int = 0, vocab_size: int | None = None
    ) -> None:
        if by not in ("sequence", "document"):
            raise SourceError(f"by={by!r}: expected 'sequence' or 'document'.")
        self.prefix, self.by = _prefix(path), by
        self.eod_token_id, self.vocab_size = eod_token_id, vocab_size
        self.path = None  # packing indices are saved where the user says: this folder may not be ours
        self._open()

    def _open(self) -> None:
        dtype, lengths, pointers, documents = _read_index(Path(f"{self.prefix}.idx"))
        data = Path(f"{self.prefix}.bin")
        if not data.is_file():
            raise SourceError(f"{data} is missing: {self.prefix}.idx is there.")
        size = data.stat().st_size
        self.tokens = np.asarray(np.memmap(data, dtype, "r")) if size >= dtype.itemsize else np.zeros(0, dtype)
        starts = pointers // dtype.itemsize
        stops = starts + lengths
        if len(lengths) and (lengths.min() < 0 or starts.min() < 0 or stops.max() > len(self.tokens)):
            raise SourceError(
                f"{data} has {len(self.tokens)} tokens, fewer than {self.prefix}.idx points to. It was cut off; "
                "write it again."
            )
        if self.by == "document":
            starts, stops = _joined(self.prefix, starts, stops, documents)
        self._starts, self._lengths = starts, stops - starts

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, document: int) -> NDArray[Any]:
        """Return the tokens of a document."""
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} out of range [0, {len(self)})")
        start = int(self._starts[document])
        return self.tokens[start : start + int(self._lengths[document])]

    def read(self, document: int, start: int, stop: int) -> NDArray[Any]:
        """Return a part of a document."""
        return self[document][start:stop]

    def lengths(self) -> NDArray[Any]:
        """Return the number of tokens of each document."""
        return np.asarray(self._lengths)

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a document, for weights by tokens."""
        return float(self._lengths.sum()) / max(len(self), 1)

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the content, wherever it lies."""
        files = {kind: sampled_digest(Path(f"{self.prefix}.{kind}")) for kind in ("bin", "idx")}
        return {**files, "by": self.by, "documents": len(self)}

    def file_of(self, document: int) -> str:
        """Return the file that holds the tokens."""
        return f"{self.prefix}.bin"

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("tokens", "_starts", "_lengths")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()


def write_megatron(documents: Iterable[Any], path: str | Path, *, dtype: Any = np.int32) -> MegatronDocuments:
    """Write documents of tokens as a Megatron dataset, each as one sequence.

    Args:
        documents: Ids of each document; a ``TokenStore`` is one such iterable. Append what ends a document yourself.
        path: Name of the dataset, without ``.bin`` and ``.idx``.
        dtype: Type of the tokens: ``int32``, or ``uint16`` for vocabularies below 65 536.
    """
    prefix, kind = _prefix(path), np.dtype(dtype)
    if kind not in _CODES:
        raise SourceError(f"dtype={kind}: expected one that Megatron has: {', '.join(map(str, _CODES))}.")
    bounds = np.iinfo(kind)
    lengths: list[int] = []
    with named_aside(Path(f"{prefix}.bin")) as aside, open(aside, "wb") as file:
        for number, ids in enumerate(documents):
            array = np.asarray(ids)
            if array.ndim != 1 or (array.size and (array.min() < bounds.min or array.max() > bounds.max)):
                raise SourceError(f"document {number} is no sequence of {kind}. Pass a dtype= that holds its ids.")
            file.write(array.astype(kind).tobytes())
            lengths.append(len(array))
        file.flush()
    with named_aside(Path(f"{prefix}.idx")) as aside, open(aside, "wb") as file:
        count = len(lengths)
        file.write(_HEADER.pack(MAGIC, 1, _CODES[kind], count, count + 1))
        file.write(np.array(lengths, "<i4").tobytes())
        starts = np.cumsum([0, *lengths], dtype=np.int64)[:-1] * kind.itemsize
        file.write(starts.astype("<i8").tobytes())
        file.write(np.arange(count + 1, dtype="<i8").tobytes())
        file.flush()
    return MegatronDocuments(prefix)


def _prefix(path: str | Path) -> str:
    text = str(local_path(path))
    return text[:-4] if text.endswith((".bin", ".idx")) else text


def _read_index(path: Path) -> tuple[np.dtype[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the type of tokens, lengths and places of sequences, and where documents begin; all of it checked."""
    if not path.is_file():
        raise SourceError(f"{path} is no file: expected the index of a Megatron dataset. Check the name.")
    size = path.stat().st_size
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        raise SourceError(f"{path} is no index of a Megatron dataset: it does not begin with MMIDIDX.")
    _, version, code, sequences, entries = _HEADER.unpack(head)
    if version != 1 or code not in _DTYPES or max(sequences, entries) > _MOST:
        raise SourceError(f"{path}: version {version}, type {code}: expected version 1 and a type of integers.")
    places = np.cumsum([_HEADER.size, 4 * sequences, 8 * sequences, 8 * entries])
    if size not in (int(places[3]), int(places[3]) + sequences):  # the second: with a mode for each sequence
        raise SourceError(f"{path} has {size} bytes, expected {int(places[3])}. It was cut off; write it again.")
    content = np.memmap(path, np.uint8, "r")
    columns = [
        np.frombuffer(content[int(a) : int(b)].tobytes(), kind).astype(np.int64)
        for a, b, kind in zip(places, places[1:], ("<i4", "<i8", "<i8"), strict=False)
    ]
    return np.dtype(_DTYPES[code]), columns[0], columns[1], columns[2]


def _joined(prefix: str, starts: Any, stops: Any, documents: Any) -> tuple[Any, Any]:
    """Return where documents of several sequences start and stop."""
    are_ends = len(documents) > 0 and documents[0] == 0 and documents[-1] == len(starts)
    if not are_ends or (np.diff(documents) < 0).any() or not np.array_equal(starts[1:], stops[:-1]):
        raise SourceError(f"{prefix}.idx: its documents are no runs of sequences. Read it with by='sequence'.")
    ends = np.concatenate([starts, stops[-1:] if len(stops) else [0]])
    return ends[documents[:-1]], ends[documents[1:]]
