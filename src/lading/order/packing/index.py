"""Which documents, or parts of them, make up which row: worked out from their lengths alone.

    lengths      3 2 2          rows of 8, an E token after each document
    row 0        0 0 0 E 1 1 E ·        piece = (document, start, size), E counted in the size
    row 1        2 2 E · · · · ·

    row_offsets  0     2   3            pieces of row r: row_offsets[r] .. row_offsets[r+1]
    document     0  1  2
    start        0  0  0
    size         4  3  3

No token is read to make an index, and none is written: rows become samples like
any other, at 12 bytes a piece. Rows are numbered in the order in which they were
opened. Empty documents take no place.

    first_fit           the first open row with room
    best_fit            the open row with the least room that suffices (of equals, the one changed last)
    concat_then_split   one stream, cut every ``row_length`` tokens

E is appended to a document shorter than the row, and to the last piece of a longer
one that was split, if that piece leaves room for it.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import PackingError
from lading.identity import fingerprint
from lading.order.packing import plain
from lading.order.packing.rules import PackingRules, num_rows_bound
from lading.runtime import compiled
from lading.runtime.fields import spaced

PACKING_VERSION = 1
BLOCK = 1 << 22


class Piece(NamedTuple):
    """A part of a document in a row: ``size`` tokens (its E counted) from ``start``, at ``column`` of ``row``."""

    row: int
    column: int
    document: int
    start: int
    size: int


@dataclass(frozen=True, eq=False)
class PackingIndex:
    """Rows made of pieces of documents; see the module for the drawing.

    Attributes:
        rules: How the rows were made.
        num_documents: Documents that were offered, empty ones included.
        lengths_hash: Hash of the documents' lengths.
        row_offsets: First piece of each row, and the number of pieces at last.
        document: Document of each piece, counted from 0.
        start: First token of each piece in its document.
        size: Tokens of each piece, its E counted.
        path: Directory it was opened from or saved to.
    """

    rules: PackingRules
    num_documents: int
    lengths_hash: str
    row_offsets: NDArray[np.int64]
    document: NDArray[Any]
    start: NDArray[Any]
    size: NDArray[np.int32]
    path: str | None = None

    def __len__(self) -> int:
        return len(self.row_offsets) - 1

    @property
    def num_pieces(self) -> int:
        return len(self.size)

    @property
    def density(self) -> float:
        """Share of the rows that is not padding."""
        places = len(self) * self.rules.row_length
        return int(self.size.sum(dtype=np.int64)) / places if places else 1.0

    @property
    def fingerprint(self) -> str:
        """16 hex digits: equal lengths and rules, equal index."""
        return index_fingerprint(self.rules, self.num_documents, self.lengths_hash)

    def pieces(self, row: int) -> list[Piece]:
        """Return what a row holds, from left to right."""
        if not 0 <= row < len(self):
            raise PackingError(f"row {row} does not exist: there are {len(self)} rows, counted from 0.")
        first, last = int(self.row_offsets[row]), int(self.row_offsets[row + 1])
        sizes = self.size[first:last].tolist()
        columns = np.cumsum([0, *sizes]).tolist()
        documents, starts = self.document[first:last].tolist(), self.start[first:last].tolist()
        inside = 0 <= first <= last <= self.num_pieces and columns[-1] <= self.rules.row_length
        known = all(0 <= document < self.num_documents for document in documents)
        if not inside or not known or min(starts, default=0) < 0 or min(sizes, default=1) < 1:
            raise PackingError(
                f"row {row} of the packing index has pieces outside it or its documents: the index is damaged. "
                "Delete its directory and make it again."
            )
        return [Piece(row, *place) for place in zip(columns, documents, starts, sizes, strict=False)]

    def rows_of_document(self, document: int) -> list[Piece]:
        """Return every piece of a document, in the order of the document; none for an empty one."""
        if not 0 <= document < self.num_documents:
            raise PackingError(
                f"document {document} does not exist: the index was made from {self.num_documents} documents, "
                "counted from 0."
            )
        places = [
            np.flatnonzero(self.document[i : i + BLOCK] == document) + i for i in range(0, self.num_pieces, BLOCK)
        ]
        found = np.concatenate(places) if places else np.zeros(0, np.int64)
        rows = np.searchsorted(self.row_offsets, found, side="right") - 1
        pieces = [self._piece(int(row), int(place)) for row, place in zip(rows, found, strict=True)]
        return sorted(pieces, key=lambda piece: piece.start)

    def _piece(self, row: int, place: int) -> Piece:
        column = int(self.size[int(self.row_offsets[row]) : place].sum())
        return Piece(row, column, int(self.document[place]), int(self.start[place]), int(self.size[place]))

    @classmethod
    def build(cls, lengths: Any, row_length: int, **rules: Any) -> PackingIndex:
        """Work an index out from the lengths of the documents.

        Args:
            lengths: Tokens in each document.
            row_length: Tokens in a row.
            **rules: The other fields of ``PackingRules``.

        >>> index = PackingIndex.build([3, 2, 2], row_length=8)
        >>> len(index), index.pieces(0)[1]
        (2, Piece(row=0, column=4, document=1, start=0, size=3))
        """
        return build_index(np.asarray(lengths), PackingRules(row_length, **rules))


def build_index(lengths: NDArray[Any], rules: PackingRules) -> PackingIndex:
    """Work an index out; compiled where that is possible, with the same result."""
    lengths = _checked(lengths, rules)
    order = _sorted_in_windows(lengths, rules)
    way = compiled_columns if compiled.enabled() else plain.index_columns
    columns = way(lengths, order, rules)
    return PackingIndex(rules, len(lengths), lengths_hash(lengths), *columns)


def compiled_columns(lengths: NDArray[Any], order: NDArray[Any] | None, rules: PackingRules) -> plain.Columns:
    """Return what ``plain.index_columns`` does, to the last bit."""
    kernels = compiled.kernels
    lengths = np.ascontiguousarray(lengths)
    asked = lengths, order, rules.row_length, rules.overflow == "truncate", rules.append_eod
    if rules.algorithm == "concat_then_split":
        columns = _empty_columns(lengths, *kernels.stream_counts(*asked))
        kernels.stream(*asked, *columns)
        return columns
    num_pieces = kernels.num_pieces(*asked)
    bound = min(num_rows_bound(lengths, rules), num_pieces)
    rows = np.empty(num_pieces, np.int32 if bound < 1 << 31 else np.int64)
    fit = kernels.first_fit if rules.algorithm == "first_fit" else kernels.best_fit
    columns = _empty_columns(lengths, fit(*asked, rules.open_rows or 0, bound, rows), num_pieces)
    kernels.group_pieces(*asked, rows, *columns)
    return columns


def _empty_columns(lengths: NDArray[Any], num_rows: int, num_pieces: int) -> plain.Columns:
    names = np.int32 if len(lengths) < 1 << 31 else np.int64
    offsets = np.zeros(num_rows + 1, np.int64)
    return offsets, np.empty(num_pieces, names), np.empty(num_pieces, lengths.dtype), np.empty(num_pieces, np.int32)


def index_fingerprint(rules: PackingRules, num_documents: int, hash_of_lengths: str) -> str:
    """Return what names an index before it is made."""
    return fingerprint([PACKING_VERSION, asdict(rules), num_documents, hash_of_lengths])


def lengths_hash(lengths: NDArray[Any]) -> str:
    """Return 16 hex digits for the lengths of the documents, whatever integers they are kept in."""
    state = hashlib.blake2b(digest_size=8)
    for i in range(0, len(lengths), BLOCK):
        state.update(np.ascontiguousarray(lengths[i : i + BLOCK], dtype="<i8").data)
    return state.hexdigest()


def _checked(lengths: NDArray[Any], rules: PackingRules) -> NDArray[Any]:
    """Return lengths as int32 or int64, refusing what cannot be packed by the document at fault."""
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise PackingError(
            f"lengths are {lengths.dtype} with {lengths.ndim} axes: expected one integer for each document. "
            "Pass the number of tokens of each document."
        )
    if not lengths.size:
        return np.zeros(0, np.int32)
    if int(lengths.min()) < 0:
        document = int(np.argmax(lengths < 0))
        raise PackingError(
            f"document {document} has {int(lengths[document])} tokens: lengths cannot be negative. "
            "Its offsets go backwards; build the token store again."
        )
    longest = int(lengths.max())
    if rules.overflow == "error" and longest > rules.row_length:
        document = int(np.argmax(lengths > rules.row_length))
        raise PackingError(
            f"document {document} has {spaced(int(lengths[document]))} tokens but a row holds "
            f"{spaced(rules.row_length)}. Pass overflow='split' or 'truncate', or raise row_length."
        )
    return lengths.astype(np.int32 if longest < (1 << 31) - rules.row_length else np.int64, copy=False)


def _sorted_in_windows(lengths: NDArray[Any], rules: PackingRules) -> NDArray[Any] | None:
    """Return the order in which documents are placed; None for their own."""
    if not rules.sort_window:
        return None
    order = np.arange(len(lengths), dtype=np.int32 if len(lengths) < 1 << 31 else np.int64)
    for i in range(0, len(lengths), rules.sort_window):
        window = lengths[i : i + rules.sort_window]
        kept = np.minimum(window, rules.row_length) if rules.overflow == "truncate" else window
        # What matters is the piece that does not fill a row: the others have rows of their own.
        order[i : i + rules.sort_window] = i + np.argsort(-(kept % rules.row_length), kind="stable")
    return order
