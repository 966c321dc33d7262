"""Packed rows as a source: rows are samples like any other.

tokens ──┐
         ├─▶ rows: shuffled, mixed, resumed and named like every sample; a batch is one gather
index ───┘

document 93 412 ─▶ rows_of_document ─▶ rows ─▶ plan.where ─▶ every step that held any part of it
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.order.packing.file import index_for, open_index
from lading.order.packing.fill import checked_rows, empty_columns, fill_rows
from lading.order.packing.index import PackingIndex, Piece
from lading.order.packing.rules import PackingRules
from lading.runtime.arrays import announce, is_in_memory, is_mapped, some_of
from lading.source.columns import Buffers
from lading.source.protocol import Named
from lading.source.spec import BatchSpec, Field
from lading.source.tokens.store import TokenDocuments, TokenStore, shown_tokens

_SHOWN = 4


class PackedRows:
    """Rows of packed documents, read from tokens through an index.

    Args:
        tokens: A ``TokenStore`` or its path, a ``TokenColumn``, or any ``TokenDocuments``.
        packing: Rules to pack by (a bare number is a row length), or a ready index. An index made here is saved
            beside the tokens, and found there the next time.
        index_dir: Where indices are saved instead; needed for tokens that have no directory.
        eod_token_id: The token E; None: what the tokens say, else 0.
        reset_positions: Whether positions start again in every segment, or run on through the row.
        with_documents: Whether rows say whose tokens they hold (``document_idx``, ``sequence_idx``).
    """

    random_free = True

    def __init__(
        self,
        tokens: Any,
        packing: int | PackingRules | PackingIndex,
        *,
        index_dir: str | Path | None = None,
        eod_token_id: int | None = None,
        reset_positions: bool = True,
        with_documents: bool = True,
    ) -> None:
        self.tokens: Any = TokenStore(tokens) if isinstance(tokens, str | Path) else tokens
        if not isinstance(self.tokens, TokenDocuments):
            raise SourceError(
                f"tokens are a {type(tokens).__name__}, expected a TokenStore, a TokenColumn or something with "
                "lengths(), read(document, start, stop) and fingerprint(). Wrap the dataset in lading.TokenColumn."
            )
        self.index = self._index(packing, index_dir)
        own = getattr(self.tokens, "eod_token_id", None)
        self.eod_token_id = int(eod_token_id if eod_token_id is not None else own or 0)
        self.reset_positions, self.with_documents = reset_positions, with_documents
        self._buffers = Buffers()
        self.masked: NDArray[np.int64] = np.zeros(0, np.int64)

    def without(self, documents: Sequence[int]) -> PackedRows:
        """Return the same rows with padding where some documents were; shapes, positions and neighbours stay."""
        wanted = np.unique(np.asarray(documents, np.int64))
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < self.index.num_documents:
            raise SourceError(
                f"documents {wanted.tolist()[:5]} are to be masked: there are {self.index.num_documents}, from 0."
            )
        masked = copy.copy(self)
        masked.masked, masked._buffers = wanted, Buffers()
        return masked

    def _index(self, packing: int | PackingRules | PackingIndex, directory: str | Path | None) -> PackingIndex:
        if not isinstance(packing, PackingIndex):
            rules = PackingRules(packing) if isinstance(packing, int) else packing
            return index_for(self.tokens.lengths(), rules, directory or getattr(self.tokens, "path", None))
        if packing.num_documents != len(self.tokens):
            raise SourceError(
                f"the packing index is of {packing.num_documents} documents, but the tokens have {len(self.tokens)}. "
                "Make the index from these tokens."
            )
        return packing

    @property
    def row_length(self) -> int:
        """Tokens in a row."""
        return self.index.rules.row_length

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, row: int) -> dict[str, NDArray[Any]]:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} out of range [0, {len(self)})")
        return {name: column[0] for name, column in self.take(np.array([row])).items()}

    def __getitems__(self, rows: list[int]) -> list[dict[str, NDArray[Any]]]:
        """Return several rows, gathered at once; torch asks for this."""
        columns = self.take(np.array(rows, np.int64))
        return [{name: column[i] for name, column in columns.items()} for i in range(len(rows))]

    def take(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Gather rows into the columns of an ``LLMIndexedBatch``; ``lading.batch.llm_batch`` makes one of them."""
        options: dict[str, Any] = {
            "eod_token_id": self.eod_token_id,
            "reset_positions": self.reset_positions,
            "with_documents": self.with_documents,
            "out": self._buffers.borrow(
                (len(rows), self.with_documents), lambda: empty_columns(self.index, len(rows), self.with_documents)
            ),
        }
        if isinstance(self.tokens, TokenStore):
            rows = checked_rows(self.index, rows)
            self._read_ahead(rows)
            columns = fill_rows(self.index, rows, self.tokens.tokens, self.tokens.offsets, **options)
        else:
            columns = fill_rows(self.index, rows, self.tokens.read, **options)
        if len(self.masked):
            self._mask(columns, np.asarray(rows))
        shared = {what: columns.pop(what) for what in ("position", "segmentation")}
        sides = {f"{side}_{what}": column for side in ("inputs", "targets") for what, column in shared.items()}
        return {"inputs": columns.pop("inputs"), "targets": columns.pop("targets"), **sides, **columns}

    def _mask(self, columns: dict[str, NDArray[Any]], rows: NDArray[np.int64]) -> None:
        """Make padding of the masked documents: nothing to read, nothing to learn, whose they were is not said."""
        for place, row in enumerate(rows.tolist()):
            first, last = int(self.index.row_offsets[row]), int(self.index.row_offsets[row + 1])
            ends = np.cumsum(self.index.size[first:last])
            for piece in np.flatnonzero(np.isin(self.index.document[first:last], self.masked)).tolist():
                span = slice(int(ends[piece] - self.index.size[first + piece]), int(ends[piece]))
                for name in columns.keys() - {"position"}:
                    columns[name][place, span] = 0

    def _read_ahead(self, rows: NDArray[np.int64]) -> None:
        """Announce the tokens of rows, where the first of some of them are not in memory; damage is found later."""
        tokens, index = self.tokens.tokens, self.index
        if not is_mapped(tokens):
            return

        def starts(pieces: NDArray[np.int64]) -> NDArray[np.int64]:
            first = self.tokens.offsets.take(index.document.take(pieces, mode="clip"), mode="clip")
            found: NDArray[np.int64] = (first + index.start.take(pieces, mode="clip")) * tokens.itemsize
            return found

        address = tokens.__array_interface__["data"][0]
        if is_in_memory(address, starts(index.row_offsets[some_of(rows)])):
            return
        begins, ends = index.row_offsets[rows], index.row_offsets[rows + 1]
        is_sound = (begins >= 0) & (begins < ends) & (ends <= index.num_pieces)
        begins, ends = begins[is_sound], ends[is_sound]
        if len(begins) and int((ends - begins).max()) <= index.rules.row_length:
            pieces = np.concatenate([np.arange(*both) for both in zip(begins.tolist(), ends.tolist(), strict=True)])
            announce(address, starts(pieces), index.size[pieces] * np.int64(tokens.itemsize))

    def name(self, row: int) -> str:
        """Return what the documents of a row are called, the first of many; empty where that is not known."""
        documents = [piece.document for piece in self.index.pieces(row)]
        names = [self.tokens.name(d) for d in documents[:_SHOWN]] if isinstance(self.tokens, Named) else []
        return f"{', '.join(names)}{' …' * (len(documents) > _SHOWN)}" if any(names) else ""

    def rows_of_document(self, document: int) -> list[Piece]:
        """Return every piece of a document (counted from 0): its row, column, start and size."""
        return self.index.rows_of_document(document)

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the rows: tokens, index, and how they are written out."""
        return {
            "tokens": self.tokens.fingerprint(),
            "packing": self.index.fingerprint,
            "eod_token_id": self.eod_token_id,
            "reset_positions": self.reset_positions,
            "with_documents": self.with_documents,
            **({"masked": self.masked.tolist()} if len(self.masked) else {}),
        }

    @property
    def mean_tokens(self) -> float:
        """Tokens of a row, padding left out: what weights given by tokens need."""
        return self.index.density * self.row_length

    def stored_at(self) -> str | None:
        """Return where the saved index lies: written into plan and ``run.json``, so that documents are found again."""
        return self.index.path

    def spec(self) -> BatchSpec:
        """Return what a batch of rows looks like."""
        vocab_size = getattr(self.tokens, "vocab_size", None)
        ids = Field(("B", self.row_length), "int32", low=0, below=vocab_size)
        places = Field(("B", self.row_length), "int32", low=0, high=self.row_length)
        sides = {f"{side}_{what}": places for side in ("inputs", "targets") for what in ("position", "segmentation")}
        numbers = Field(("B", self.row_length), None, low=0)
        names = {"document_idx": numbers, "sequence_idx": numbers} if self.with_documents else {}
        return BatchSpec({"inputs": ids, "targets": ids, **sides, **names})

    def file_of(self, row: int) -> str:
        """Return the file that holds the tokens of a row, where there is one."""
        return self.tokens.file_of(row) if isinstance(self.tokens, TokenStore) else ""

    def describe(self, row: int) -> dict[str, str]:
        """Return a row in a line and whose tokens it holds, for those who look at a run."""
        pieces = self.index.pieces(row)
        documents = ", ".join(str(piece.document) for piece in pieces[:_SHOWN]) + " …" * (len(pieces) > _SHOWN)
        return {"text": self.preview(row), "label": f"document{'s' * (len(pieces) != 1)} {documents}"}

    def preview(self, row: int) -> str:
        """Return the beginning of a row."""
        ids = self[row]["inputs"]
        return self.tokens.text(ids) if isinstance(self.tokens, TokenStore) else shown_tokens(ids, "")

    def __getstate__(self) -> dict[str, Any]:
        # A worker maps a saved index again; sending its pages would copy it.
        kept = self.index if self.index.path is None else None
        return {**vars(self), "index": kept, "index_path": self.index.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state.pop("index_path")
        vars(self).update(state)
        if path is not None:
            self.index = open_index(path)
