"""Write a token store, document by document, in bounded memory.

    ids ─▶ check ─▶ tokens.bin, offsets.bin    then tokens.json, then the directory gets its name

The directory is built aside and swapped at the end: a store is there completely or not at all, and while one is
replaced there is always the old one or the new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import fingerprint
from lading.runtime.files import built_aside, json_bytes
from lading.runtime.paths import local_path
from lading.source.tokens.store import TOKENS_VERSION
from lading.source.tokens.tokenizer import Tokenizer, name_of

FLUSH_DOCUMENTS = 1 << 16
FLUSH_TOKENS = 1 << 23


def smallest_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest little-endian integers that hold a vocabulary."""
    if not 0 < vocab_size <= 1 << 31:
        raise SourceError(f"vocab_size is {vocab_size}: expected 1 to 2**31, for ids are int32 in batches.")
    return np.dtype("u1" if vocab_size <= 1 << 8 else "<u2" if vocab_size <= 1 << 16 else "<u4")


def dtype_for(tokenizer: Tokenizer) -> np.dtype[Any]:
    """Return the type of the tokens on disk; refuse an end of documents that is no id."""
    dtype = smallest_dtype(tokenizer.vocab_size)
    if tokenizer.eod_token_id >= tokenizer.vocab_size:
        raise SourceError(
            f"tokenizer {name_of(tokenizer)} has the ids 0 to {tokenizer.vocab_size - 1}, and {tokenizer.eod_token_id} "
            "is to end documents. Choose one of its ids (--eod)."
        )
    return dtype


@contextmanager
def disk_errors(out: Path, more: str = "") -> Iterator[None]:
    """Say what a disk refused while a store was made, and what more there is to say."""
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"{out} cannot be made ({error.filename or out}: {error.strerror or error}). Check permissions and space "
            f"on disk, or choose another place.{more}"
        ) from error


def checked_ids(ids: Any, vocab_size: int, name: Callable[[], str]) -> NDArray[Any]:
    """Return the ids of a document as an array, once they are known to be ids of the vocabulary; errors name it."""
    try:
        array = np.asarray(ids)
    except (ValueError, OverflowError) as error:  # lists of unequal lengths, integers beyond 64 bits
        raise SourceError(
            f"{name()} is no sequence of token ids ({error}). Check the column and the tokenizer."
        ) from error
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SourceError(
            f"{name()} holds {array.dtype} with {array.ndim} axes, expected a sequence of token ids. Check the column "
            "and the tokenizer."
        )
    if array.size and (int(array.min()) < 0 or int(array.max()) >= vocab_size):
        wrong = int(array[(array < 0) | (array >= vocab_size)][0])
        raise SourceError(
            f"{name()} holds token {wrong}, but the vocabulary has {vocab_size}. Check that tokenizer and data belong "
            "together."
        )
    return array


def check_target(out: Path, *, overwrite: bool) -> None:
    """Refuse to make a store where something is that may not be replaced."""
    if out.exists() and not overwrite:
        raise SourceError(f"{out} exists already. Choose another directory, or pass overwrite=True (--overwrite).")
    if out.exists() and not (out / "tokens.json").is_file():
        raise SourceError(f"{out} exists already and is no token store: it is not replaced. Choose another.")


class TokenWriter:
    """Write documents one by one; a context manager, without whose end nothing is kept.

    Args:
        tokenizer: Its vocabulary bounds the ids.
        overwrite: Whether a token store at ``out`` is replaced.
    """

    def __init__(self, out: str | Path, tokenizer: Tokenizer, *, overwrite: bool = False) -> None:
        self.out, self.tokenizer, self.overwrite = local_path(out), tokenizer, overwrite
        check_target(self.out, overwrite=overwrite)
        self.dtype = dtype_for(tokenizer)
        self._hashes = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
        self._pending: list[NDArray[Any]] = []
        self._num_tokens = self._num_documents = self._num_pending = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._aside = stack.enter_context(built_aside(self.out, replace=self.overwrite))
            self._tokens = stack.enter_context((self._aside / "tokens.bin").open("wb"))
            self._offsets = stack.enter_context((self._aside / "offsets.bin").open("wb"))
            self._offsets.write(np.zeros(1, "<i8").tobytes())
            self._stack = stack.pop_all()
        return self

    @property
    def folder(self) -> Path:
        """Where the store is until it is whole: what lies in it becomes part of it."""
        return self._aside

    def add(self, ids: Any, *, place: str = "") -> None:
        """Add a document of ready ids.

        Args:
            ids: Its tokens; an empty document keeps its number and holds nothing.
            place: Where it came from, for errors.
        """
        number = self._num_documents + len(self._pending)
        array = checked_ids(ids, self.tokenizer.vocab_size, lambda: place or f"document {number}")
        self._pending.append(array.astype(self.dtype, copy=False))
        self._num_pending += array.size
        if len(self._pending) >= FLUSH_DOCUMENTS or self._num_pending >= FLUSH_TOKENS:
            self._flush()

    def add_many(self, tokens: NDArray[Any], lengths: NDArray[Any], *, name: str = "a document") -> None:
        """Add several documents that lie one after the other, such as those of a memory map.

        Args:
            lengths: Tokens of each document; they add up to the tokens.
            name: What they are called, for errors.
        """
        self._flush()
        if len(lengths) and (int(np.min(lengths)) < 0 or int(np.sum(lengths)) != len(tokens)):
            raise SourceError(f"{name}: {len(tokens)} tokens, but the lengths add up to {int(np.sum(lengths))}.")
        for start in range(0, len(tokens), FLUSH_TOKENS):
            part = checked_ids(tokens[start : start + FLUSH_TOKENS], self.tokenizer.vocab_size, lambda: name)
            self._write(0, part.astype(self.dtype, copy=False).tobytes())
        for start in range(0, len(lengths), FLUSH_DOCUMENTS):
            ends = np.cumsum(lengths[start : start + FLUSH_DOCUMENTS], dtype="<i8") + self._num_tokens
            self._write(1, ends.astype("<i8", copy=False).tobytes())
            self._num_tokens = int(ends[-1])
        self._num_documents += len(lengths)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            self._stack.__exit__(kind, error, tb)
            return
        try:
            with self._stack:
                self._flush()
                (self._aside / "tokens.json").write_bytes(json_bytes(self._description()))
        except FileExistsError as found:  # made by another process meanwhile
            raise SourceError(f"{self.out} was made by another process meanwhile. Choose another directory.") from found

    def _flush(self) -> None:
        pending, self._pending, self._num_pending = self._pending, [], 0
        if pending:
            self.add_many(np.concatenate(pending), np.array([len(ids) for ids in pending], np.int64))

    def _write(self, which: int, content: bytes) -> None:
        (self._tokens, self._offsets)[which].write(content)
        self._hashes[which].update(content)

    def _description(self) -> dict[str, Any]:
        return {
            "tokens_version": TOKENS_VERSION,
            "dtype": self.dtype.str,
            "num_documents": self._num_documents,
            "num_tokens": self._num_tokens,
            "vocab_size": int(self.tokenizer.vocab_size),
            "eod_token_id": int(self.tokenizer.eod_token_id),
            "tokenizer": name_of(self.tokenizer),
            "content": fingerprint([self.dtype.str, *(state.hexdigest() for state in self._hashes)]),
        }
