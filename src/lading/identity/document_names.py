"""The names of documents on disk, beside what they name: an id where a document has one, else its file and line.

    names.json           how many there are, the field that the ids were in, digest of the files
    names-texts.bin      c4/1https://a/2a.jsonlb.parquet       the ids of all documents, then the files they came from
    names-ends.bin       4 15 22 31                            where each text ends
    names-places.bin     0 0 1 | 40 1 0        from document 0 on: file 0, line 1; from document 40 on: file 1, row 0

A run of lines or rows takes 24 bytes however long it is, so names that nobody asked for cost nothing. Everything is
memory-mapped and looked at when it is asked for. A name is text from outside, to be shown with care.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity.hashing import fingerprint
from lading.runtime.arrays import mapped_array
from lading.runtime.fields import Origin
from lading.runtime.files import json_bytes

NAMES_VERSION = 1
LONGEST_ID = 1 << 16
WHOLE_FILE = -1
_DAMAGED = "The names are damaged; build the store again."
_COLUMNS = {"texts": "u1", "ends": "<i8", "places": "<i8"}
_BLOCK = 1 << 20
_MOST = 1 << 48

I64 = NDArray[np.int64]


class DocumentNames:
    """The names of the documents of the store in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        origin = Origin(self.folder / "names.json", SourceError, _DAMAGED)
        found = origin.record(origin.read(1 << 16))
        if found.value("names_version") != NAMES_VERSION:
            found.refuse("names_version", str(NAMES_VERSION))
        sizes = {name: found.integer(name, low=0, high=_MOST) for name in _COLUMNS}
        self.num_documents = found.integer("num_documents", low=0, high=_MOST)
        self.num_ids = found.integer("num_ids", low=0, high=self.num_documents)
        self.field, self.digest = found.text("field"), found.hexadecimal("digest", digits=16)
        self._first_file = self.num_documents if self.field else 0
        if sizes["places"] % 3 or sizes["ends"] < self._first_file:
            _refuse(self.folder / "names.json", "how many there are")
        self._texts, self._ends, places = (
            mapped_array(_file_of(self.folder, name), np.dtype(_COLUMNS[name]), size) for name, size in sizes.items()
        )
        self._places = places.reshape(-1, 3)

    def __len__(self) -> int:
        return self.num_documents

    def __getitem__(self, document: int) -> str:
        if not 0 <= document < len(self):
            raise IndexError(f"document {document} out of range [0, {len(self)})")
        return self.id(document) or self.place(document)

    def id(self, document: int) -> str:
        """Return the id of a document, empty where it has none."""
        return self._text(document) if self.field else ""

    def place(self, document: int) -> str:
        """Return where a document came from: ``a.jsonl:12`` (line 12), ``a.parquet#12`` (row 12), or the file."""
        run = bisect.bisect_right(self._places[:, 0], document) - 1  # looks at 24 of 10^7
        first, file, line = self._places[run].tolist() if run >= 0 else (0, -1, 0)
        if not 0 <= file < len(self._ends) - self._first_file or not 0 <= first <= document:
            _refuse(_file_of(self.folder, "places"), f"document {document}")
        name = self._text(self._first_file + file)
        mark = "#" if name.endswith(".parquet") else ":"
        return name if line == WHOLE_FILE else f"{name}{mark}{line + document - first}"

    def find(self, name: str) -> list[int]:
        """Return every document of a name: an id, or a place as ``place`` says it."""
        texts = self._find(name)
        places = [(text, WHOLE_FILE) for text in texts]
        file, _, number = name.rpartition("#") if ".parquet#" in name else name.rpartition(":")
        if number.isdecimal() and len(number) < 19:
            places += [(text, int(number)) for text in self._find(file)]
        found = {text for text in texts if text < self._first_file}
        for text, line in ((text - self._first_file, line) for text, line in places if text >= self._first_file):
            runs = np.flatnonzero(self._places[:, 1] == text)
            first, _, begins = self._places[runs].T
            ends = np.append(self._places[1:, 0], self.num_documents)[runs]
            document = first + line - begins
            is_here = ((begins == WHOLE_FILE) == (line == WHOLE_FILE)) & (first <= document) & (document < ends)
            found.update(document[is_here].tolist())
        return sorted(document for document in found if 0 <= document < len(self))

    def check(self) -> None:
        """Look at every byte; raise where it is not what was written."""
        if _digest(self.folder) != self.digest:
            _refuse(_file_of(self.folder, "*"), "their digest")

    def _text(self, number: int) -> str:
        start, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
        if not 0 <= start <= end <= len(self._texts) or end - start > LONGEST_ID:
            _refuse(_file_of(self.folder, "ends"), f"text {number}")
        return self._texts[start:end].tobytes().decode(errors="replace")

    def _find(self, text: str) -> list[int]:
        """Return the numbers of the texts that are equal to one; compared from behind, where names of a kind differ."""
        wanted = _encoded(text)
        found: list[int] = []
        for first in range(0, len(self._ends) if wanted else 0, _BLOCK):
            ends = self._ends[first : first + _BLOCK]
            starts = np.append(self._ends[first - 1] if first else 0, ends[:-1])
            places = np.flatnonzero((ends - starts == len(wanted)) & (starts >= 0) & (ends <= len(self._texts)))
            for back, byte in enumerate(reversed(wanted), 1):
                if not len(places):
                    break
                places = places[self._texts[ends[places] - back] == byte]
            found += (places + first).tolist()
        return found


def has_names(folder: str | Path) -> bool:
    """Say whether names lie in a folder."""
    return (Path(folder) / "names.json").is_file()


def names_digest(location: str | None) -> str | None:
    """Return what identifies the names of the store, or of a packing index in it, at a place; None where none is."""
    places = [] if location is None else [Path(location), Path(location).parent]
    with contextlib.suppress(SourceError, OSError):
        return next((DocumentNames(folder).digest for folder in places if has_names(folder)), None)
    return None


class NamesWriter:
    """Write the names of documents beside them as they come: of which files they are, and the field of their ids."""

    def __init__(self, folder: Path, files: Sequence[str], field: str = "") -> None:
        self._folder, self._files, self._field = folder, files, field
        self._sizes = dict.fromkeys(_COLUMNS, 0)
        self._num_documents = self._num_ids = 0

    def __enter__(self) -> Self:
        for name in _COLUMNS:
            _file_of(self._folder, name).write_bytes(b"")
        return self

    def add(self, files: I64, lines: I64, sizes: I64, ids: bytes) -> None:
        """Add the names of some documents.

        Args:
            files: The number of each document's file.
            lines: Its line or row there; ``WHOLE_FILE`` where it is all of it.
            sizes: Bytes of its id, 0 where it has none.
            ids: The ids, one after the other.
        """
        is_first = np.ones(len(files), bool)
        is_first[1:] = (np.diff(files) != 0) | (np.diff(lines) != 1)
        runs = np.flatnonzero(is_first)
        self._write("places", np.stack([runs + self._num_documents, files[runs], lines[runs]], 1))
        if self._field:
            self._add_texts(sizes, ids)
        self._num_documents += len(files)
        self._num_ids += int(np.count_nonzero(sizes))

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            files = [_encoded(file) for file in self._files]
            self._add_texts(np.array([len(file) for file in files]), b"".join(files))
            counts = {"num_documents": self._num_documents, "num_ids": self._num_ids, "field": self._field}
            written = {"names_version": NAMES_VERSION, **counts, **self._sizes, "digest": _digest(self._folder)}
            (self._folder / "names.json").write_bytes(json_bytes(written))

    def _add_texts(self, sizes: NDArray[Any], texts: bytes) -> None:
        self._write("ends", np.cumsum(sizes) + self._sizes["texts"])
        self._write("texts", np.frombuffer(texts, np.uint8))

    def _write(self, name: str, numbers: NDArray[Any]) -> None:
        with _file_of(self._folder, name).open("ab") as file:
            file.write(numbers.astype(_COLUMNS[name]).tobytes())
        self._sizes[name] += numbers.size


def _file_of(folder: Path, name: str) -> Path:
    return folder / f"names-{name}.bin"


def _encoded(text: str) -> bytes:
    return text.encode(errors="backslashreplace")  # half a character has no bytes


def _digest(folder: Path) -> str:
    hashes = []
    for name in _COLUMNS:
        with _file_of(folder, name).open("rb") as file:
            hashes.append(hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest())
    return fingerprint(hashes)


def _refuse(file: Path, what: str) -> NoReturn:
    raise SourceError(f"{file}: {what} cannot be right. {_DAMAGED}")
