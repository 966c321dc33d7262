"""Write a token store, document by document, in bounded memory.

    texts ─▶ tokenizer ─▶ check ids ─▶ tokens.bin, offsets.bin    then tokens.json, then the directory gets its name

The directory is built aside and swapped at the end: a store is there completely or not at all, and while one is
replaced there is always the old one or the new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import fingerprint
from lading.runtime.files import built_aside, json_bytes
from lading.source.tokens.read import TextDocument, read_documents
from lading.source.tokens.store import TOKENS_VERSION, TokenStore
from lading.source.tokens.tokenizer import ByteTokenizer, Tokenizer

FLUSH_DOCUMENTS = 1 << 16
FLUSH_TOKENS = 1 << 23


def build_tokens(
    inputs: str | Path | Iterable[str | Path],
    out: str | Path,
    tokenizer: Tokenizer | None = None,
    *,
    field: str = "text",
    split: str = "file",
    overwrite: bool = False,
) -> TokenStore:
    """Build a token store from text, JSONL or Parquet files.

    Args:
        inputs: One or several files: ``.jsonl`` and ``.parquet`` hold a document a line or row, others are text.
        out: Directory to make.
        tokenizer: Makes ids of texts; None: bytes.
        field: Key or column of the text (or of ready token ids) in JSONL and Parquet.
        split: What a document is in a text file: the whole ``file``, a ``line``, or a ``paragraph``.
        overwrite: Whether a token store at ``out`` is replaced.
    """
    tokenizer = tokenizer or ByteTokenizer()
    paths = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    with TokenWriter(out, tokenizer, overwrite=overwrite) as writer:
        for document in read_documents([Path(path) for path in paths], field=field, split=split):
            writer.add_document(document)
    return TokenStore(out, validate=False)  # every id was checked on its way in


def smallest_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest little-endian integers that hold a vocabulary."""
    if not 0 < vocab_size <= 1 << 31:
        raise SourceError(f"vocab_size is {vocab_size}: expected 1 to 2**31, for ids are int32 in batches.")
    return np.dtype("u1" if vocab_size <= 1 << 8 else "<u2" if vocab_size <= 1 << 16 else "<u4")


class TokenWriter:
    """Write documents one by one; a context manager, without whose end nothing is kept.

    Args:
        out: Directory to make.
        tokenizer: Its vocabulary bounds the ids.
        overwrite: Whether a token store at ``out`` is replaced.
    """

    def __init__(self, out: str | Path, tokenizer: Tokenizer, *, overwrite: bool = False) -> None:
        self.out, self.tokenizer, self.overwrite = Path(out), tokenizer, overwrite
        if self.out.exists() and not overwrite:
            raise self._exists()
        if self.out.exists() and not (self.out / "tokens.json").is_file():
            raise SourceError(f"{self.out} exists already and is no token store: it is not replaced. Choose another.")
        self.dtype = smallest_dtype(tokenizer.vocab_size)
        self._hashes = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        self._pending: list[NDArray[Any]] = []
        self._ends: list[int] = []
        self._num_tokens = self._num_documents = self._num_flushed = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._aside = stack.enter_context(built_aside(self.out, replace=self.overwrite))
            self._tokens = stack.enter_context((self._aside / "tokens.bin").open("wb"))
            self._offsets = stack.enter_context((self._aside / "offsets.bin").open("wb"))
            self._offsets.write(np.zeros(1, "<i8").tobytes())
            self._stack = stack.pop_all()
        return self

    def add(self, ids: Any, *, file: str = "", place: str = "") -> None:
        """Add a document of ready ids.

        Args:
            ids: Its tokens; an empty document keeps its number and holds nothing.
            file: The file it came from, for errors.
            place: Where in the file, for errors.
        """
        try:
            array = np.asarray(ids)
        except (ValueError, OverflowError) as error:  # lists of unequal lengths, integers beyond 64 bits
            raise SourceError(
                f"{self._name(file, place)} is no sequence of token ids ({error}). Check the column and the tokenizer."
            ) from error
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise SourceError(
                f"{self._name(file, place)} holds {array.dtype} with {array.ndim} axes, expected a sequence of token "
                "ids. Check the column and the tokenizer."
            )
        if array.size and (int(array.min()) < 0 or int(array.max()) >= self.tokenizer.vocab_size):
            wrong = int(array[(array < 0) | (array >= self.tokenizer.vocab_size)][0])
            raise SourceError(
                f"{self._name(file, place)} holds token {wrong}, but the vocabulary has "
                f"{self.tokenizer.vocab_size}. Check that tokenizer and data belong together."
            )
        self._pending.append(array.astype(self.dtype, copy=False))
        self._num_tokens += array.size
        self._num_documents += 1
        self._ends.append(self._num_tokens)
        if len(self._ends) >= FLUSH_DOCUMENTS or self._num_tokens - self._num_flushed >= FLUSH_TOKENS:
            self._flush()

    def add_document(self, document: TextDocument) -> None:
        """Add a document that was read from a file: its text through the tokenizer, or its ids as they are."""
        content = document.content
        ids = self.tokenizer.encode(content) if isinstance(content, str) else content
        self.add(ids, file=document.file, place=document.place)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, tb)
            return
        try:
            with self._stack:
                self._flush()
                (self._aside / "tokens.json").write_bytes(json_bytes(self._description()))
        except FileExistsError as found:  # made by another process meanwhile
            raise self._exists() from found

    def _flush(self) -> None:
        if self._ends:
            block, ends = np.concatenate(self._pending), np.array(self._ends, "<i8")
            for array, file, state in zip((block, ends), (self._tokens, self._offsets), self._hashes, strict=True):
                content = array.tobytes()
                file.write(content)
                state.update(content)
        self._pending, self._ends, self._num_flushed = [], [], self._num_tokens

    def _description(self) -> dict[str, Any]:
        return {
            "tokens_version": TOKENS_VERSION,
            "dtype": self.dtype.str,
            "num_documents": self._num_documents,
            "num_tokens": self._num_tokens,
            "vocab_size": int(self.tokenizer.vocab_size),
            "eod_token_id": int(self.tokenizer.eod_token_id),
            "tokenizer": str(getattr(self.tokenizer, "name", type(self.tokenizer).__qualname__)),
            "content": fingerprint([self.dtype.str, *(state.hexdigest() for state in self._hashes)]),
        }

    def _exists(self) -> SourceError:
        return SourceError(f"{self.out} exists already. Choose another directory, or pass overwrite=True.")

    def _name(self, file: str, place: str) -> str:
        source = f"{file}{', ' + place if place else ''}: " if file else ""
        return f"{source}document {self._num_documents}"
