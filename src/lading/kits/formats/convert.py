"""Token stores from files people have, and documents of a stream that an end-of-text token cuts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ConfigError, SourceError
from lading.kits.formats.mds import MDSDocuments
from lading.kits.formats.megatron import MegatronDocuments
from lading.source.tokens.store import TokenDocuments, TokenStore
from lading.source.tokens.tokenizer import FunctionTokenizer
from lading.source.tokens.write import TokenWriter, disk_errors
from lading.source.windows import Windows

_BLOCK = 1 << 24


class StreamDocuments:
    """The documents of a stream of tokens, such as nanoGPT's ``train.bin``: each ends with a token, which is left out.

    >>> documents = StreamDocuments(np.array([1, 2, 9, 3, 9, 4]), eod_token_id=9)
    >>> documents.lengths().tolist(), documents.read(1, 0, 5).tolist()
    ([2, 1, 1], [3])

    Args:
        tokens: A file of tokens, a memory map, or an array.
        eod_token_id: The token that ends a document; GPT-2's is 50 256.
        dtype: Type of the tokens in a file that is given by its name.
    """

    path = None
    vocab_size = None

    def __init__(self, tokens: str | Path | NDArray[Any], *, eod_token_id: int, dtype: Any = np.uint16) -> None:
        self._stream = Windows(tokens, 1, dtype=dtype)
        self.eod_token_id = eod_token_id
        found = self._stream.tokens
        parts = [np.flatnonzero(found[i : i + _BLOCK] == eod_token_id) + i for i in range(0, len(found), _BLOCK)]
        ends = np.concatenate(parts)
        stops = ends if len(ends) and ends[-1] == len(found) - 1 else np.append(ends, len(found))
        self._starts = np.concatenate([[0], stops[:-1] + 1])
        self._stops = stops

    def __len__(self) -> int:
        return len(self._starts)

    def lengths(self) -> NDArray[Any]:
        """Return the number of tokens of each document."""
        return np.asarray(self._stops - self._starts)

    def read(self, document: int, start: int, stop: int) -> NDArray[Any]:
        """Return a part of a document."""
        first, last = int(self._starts[document]), int(self._stops[document])
        return self._stream.tokens[first + start : min(first + stop, last)]

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the content, wherever it lies."""
        return {"tokens": self._stream.fingerprint()["tokens"], "eod_token_id": self.eod_token_id}


def open_documents(path: Path, format_: str, eod: int, column: str, dtype: str | None) -> TokenDocuments:
    """Return the documents of files of a format: what ``lading tokens import`` reads."""
    types = ("uint8", "uint16", "uint32", "int32", "int64")
    if dtype is not None and dtype not in types:
        raise ConfigError(f"--dtype {dtype}: expected one of {', '.join(types)}.")
    if format_ == "nanogpt":
        return StreamDocuments(path, eod_token_id=eod, dtype=dtype or "uint16")
    if format_ == "megatron":
        return MegatronDocuments(path, by="document")
    if format_ == "mds":
        return MDSDocuments(path, column, dtype=dtype or "int64")
    raise ConfigError(f"--format {format_}: expected nanogpt, megatron or mds.")


def store_tokens(
    documents: TokenDocuments,
    out: str | Path,
    *,
    vocab_size: int,
    eod_token_id: int,
    name: str = "converted",
    overwrite: bool = False,
) -> TokenStore:
    """Make a token store of documents that are tokens already.

    Args:
        documents: ``MegatronDocuments``, ``MDSDocuments``, ``StreamDocuments``, a ``TokenColumn``, or your own.
        out: Directory to make.
        vocab_size: Size of the vocabulary; larger ids are refused.
        eod_token_id: What ends a document. One at a document's end is left out: packing appends it.
        name: What the tokenizer is called.
        overwrite: Whether a token store at ``out`` is replaced.
    """
    if not isinstance(documents, TokenDocuments):
        raise SourceError(f"documents are a {type(documents).__name__}, expected lengths(), read() and fingerprint().")
    tokenizer = FunctionTokenizer(_no_text, vocab_size, eod_token_id, name)
    with disk_errors(Path(out)), TokenWriter(out, tokenizer, overwrite=overwrite) as writer:
        for document, length in enumerate(documents.lengths().tolist()):
            ids = documents.read(document, 0, length)
            writer.add(ids[:-1] if length and int(ids[-1]) == eod_token_id else ids, place=f"document {document}")
    return TokenStore(out, validate=False)


def _no_text(text: str) -> list[int]:
    raise SourceError("documents that are tokens already hold no text.")
