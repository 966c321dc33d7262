"""A corpus of tokens on disk: all documents one after the other, and where each starts.

    corpus/
    ├── tokens.json     dtype, vocabulary, numbers of documents and tokens, hash of the content
    ├── tokens.bin      1 2 3 4 5 6 7          little-endian, the smallest integers that hold the vocabulary
    ├── offsets.bin     0     3   5   7        int64; document d is tokens[offsets[d] : offsets[d + 1]]
    ├── names…          what each document is called (``lading.identity.document_names``)
    └── packing-…/      packing indices, made beside what they pack

Both arrays are memory-mapped: a corpus may be larger than memory. End-of-document
tokens are not stored; packing appends them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.document_names import DocumentNames, has_names
from lading.runtime.arrays import mapped_array
from lading.runtime.fields import Fields, FieldTable, Origin
from lading.runtime.paths import local_path

TOKENS_VERSION = 1
CHECKED_BELOW_BYTES = 1 << 30
BLOCK = 1 << 22
DTYPES = ("|u1", "<u2", "<u4")
MOST = 1 << 52
_SHOWN_BYTES = 20_000


@runtime_checkable
class TokenDocuments(Protocol):
    """Documents of tokens that can be packed: a ``TokenStore``, a ``TokenColumn``, or something of your own."""

    def __len__(self) -> int: ...
    def lengths(self) -> NDArray[Any]: ...
    def read(self, document: int, start: int, stop: int, /) -> NDArray[Any]: ...
    def fingerprint(self) -> Any: ...


def shown_tokens(ids: NDArray[Any], tokenizer: str, file: Path | None = None) -> str:
    """Return the first tokens as text where each is a byte, or the tokenizer lies with them; else as numbers."""
    if file is not None and file.is_file():
        from lading.source.tokens.tokenizers import read_tokenizer_json  # here: few stores have one

        return read_tokenizer_json(file).decode(ids[: _SHOWN_BYTES // 4].tolist())
    if tokenizer == "byte":
        ids = ids[:_SHOWN_BYTES]
        return bytes(ids[ids < 256].astype(np.uint8)).decode(errors="replace")
    return " ".join(map(str, ids[: _SHOWN_BYTES // 4].tolist()))


class TokenStore:
    """A memory-mapped corpus of tokens.

    Args:
        path: Directory made by ``build_tokens`` or ``lading tokens build``.
        validate: Whether to look at every offset and token; None: below 1 GB.
    """

    random_free = True

    def __init__(self, path: str | Path, *, validate: bool | None = None) -> None:
        self.path = local_path(path)
        found = _read_description(self.path)
        self.vocab_size: int = found["vocab_size"]
        self.eod_token_id: int = found["eod_token_id"]
        self.tokenizer: str = found["tokenizer"]
        self.content: str = found["content"]
        self.tokens = mapped_array(self.path / "tokens.bin", np.dtype(found["dtype"]), found["num_tokens"])
        self.offsets = mapped_array(self.path / "offsets.bin", np.dtype("<i8"), found["num_documents"] + 1)
        self._check_ends()
        if validate if validate is not None else self.tokens.nbytes + self.offsets.nbytes < CHECKED_BELOW_BYTES:
            self.validate()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return len(self.tokens)

    @property
    def mean_tokens(self) -> float:
        """Mean tokens of a document, for weights by tokens."""
        return self.num_tokens / max(len(self), 1)

    def __getitem__(self, document: int) -> NDArray[Any]:
        """Return the tokens of a document."""
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} out of range [0, {len(self)})")
        return self.tokens[int(self.offsets[document]) : int(self.offsets[document + 1])]

    def read(self, document: int, start: int, stop: int) -> NDArray[Any]:
        """Return a part of a document."""
        return self[document][start:stop]

    def lengths(self) -> NDArray[Any]:
        """Return the number of tokens of each document."""
        lengths = np.empty(len(self), np.int64 if self.num_tokens >= 1 << 31 else np.int32)
        for i in range(0, len(self), BLOCK):
            block = np.diff(self.offsets[i : i + BLOCK + 1])
            if block.size and int(block.min()) < 0:
                self._refuse_offsets(i + int(np.argmax(block < 0)))
            lengths[i : i + BLOCK] = block
        return lengths

    def validate(self) -> None:
        """Look at every offset, token and name; raise with file, document and value of the first that is wrong."""
        self.lengths()
        if self.names is not None:
            self.names.check()
        for i in range(0, self.num_tokens, BLOCK):
            block = self.tokens[i : i + BLOCK]
            if int(block.max()) >= self.vocab_size:
                place = i + int(np.argmax(block >= self.vocab_size))
                document = int(np.searchsorted(self.offsets, place, side="right")) - 1
                raise SourceError(
                    f"{self.path / 'tokens.bin'}: document {document} holds token {int(self.tokens[place])}, but the "
                    f"vocabulary has {self.vocab_size}. The file is damaged, or was made with another tokenizer."
                )

    @functools.cached_property
    def names(self) -> DocumentNames | None:
        """The names of the documents; None where the store was made without."""
        names = DocumentNames(self.path) if has_names(self.path) else None
        if names is not None and len(names) != len(self):
            raise SourceError(f"{self.path} has {len(self)} documents and {len(names)} names: build it again.")
        return names

    def name(self, document: int) -> str:
        """Return what a document is called, empty where that is not known."""
        return "" if self.names is None else self.names[document]

    def stored_at(self) -> str | None:
        """Return where the store lies: written into plan and ``run.json``, so that names are found again."""
        return str(self.path.absolute())

    def file_of(self, document: int) -> str:
        """Return the file that holds the tokens."""
        return str(self.path / "tokens.bin")

    def describe(self, document: int) -> dict[str, str]:
        """Return a document in a line, for those who look at a run."""
        return {"text": self.preview(document), "label": f"{len(self[document])} tokens"}

    def preview(self, document: int) -> str:
        """Return the beginning of a document."""
        return self.text(self[document])

    @property
    def readable(self) -> bool:
        """Whether tokens can be read as text: they are bytes, or ``tokenizer.json`` lies with them."""
        return self.tokenizer == "byte" or (self.path / "tokenizer.json").is_file()

    def text(self, ids: NDArray[Any]) -> str:
        """Return the beginning of some tokens as text where the store is readable, else as numbers."""
        return shown_tokens(ids, self.tokenizer, self.path / "tokenizer.json")

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the content, wherever it lies."""
        return {"tokens": self.content, "documents": len(self)}

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A worker maps the files again; what was checked once is not checked again.
        self.__init__(state["path"], validate=False)  # type: ignore[misc]

    def _check_ends(self) -> None:
        first, last = int(self.offsets[0]), int(self.offsets[-1])
        if first != 0 or last != self.num_tokens:
            raise SourceError(
                f"{self.path / 'offsets.bin'} goes from {first} to {last}, expected 0 to {self.num_tokens}, the number "
                "of tokens. The store is damaged; build it again."
            )

    def _refuse_offsets(self, document: int) -> None:
        start, stop = int(self.offsets[document]), int(self.offsets[document + 1])
        raise SourceError(
            f"{self.path / 'offsets.bin'}: document {document} starts at {start} and ends at {stop}: offsets go "
            "backwards. The store is damaged; build it again."
        )


def _read_description(path: Path) -> dict[str, Any]:
    file = path / "tokens.json"
    if not file.exists():
        raise SourceError(f"no token store at {path}: {file} is missing. Make one with lading tokens build.")
    origin = Origin(file, SourceError, "The store is damaged or of another Lading; build it again.")
    found = origin.record(origin.read())
    if found.value("tokens_version") != TOKENS_VERSION:
        found.refuse("tokens_version", str(TOKENS_VERSION))
    return found.read(_FIELDS)


_NUMBER = functools.partial(Fields.integer, low=0, high=MOST)
_FIELDS: FieldTable = {
    "vocab_size": functools.partial(Fields.integer, low=1, high=1 << 32),
    "eod_token_id": functools.partial(Fields.integer, low=-(1 << 31), high=(1 << 31) - 1),
    "tokenizer": Fields.text,
    "content": Fields.text,
    "dtype": functools.partial(Fields.text, choices=DTYPES),
    "num_tokens": _NUMBER,
    "num_documents": _NUMBER,
}
