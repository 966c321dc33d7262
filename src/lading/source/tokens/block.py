"""The block function: one block of inputs becomes one part on disk, the same bytes whoever makes it.

    tokens.parts/000012.bin     the tokens of its documents, then of each length, file, line, size of its id; the ids
                 000012.json    what it was made of, how many, and the digest of the .bin; written last

A part whose record says that it was made of the same inputs in the same way, and whose digest is right, is kept: that
is how a killed build resumes, and how tasks on several machines share one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import fingerprint
from lading.runtime.fields import Fields, FieldTable, Origin
from lading.runtime.files import json_bytes, write_aside, written_aside
from lading.source.tokens.inputs import InputBlock, InputFile, cut_blocks
from lading.source.tokens.read import TextDocument, read_documents
from lading.source.tokens.store import MOST
from lading.source.tokens.tokenizer import BatchTokenizer, Tokenizer, TokenizerRef
from lading.source.tokens.write import checked_ids, smallest_dtype

PARTS_VERSION = 2
_NUMBERS = 4  # of a document: length, file, line, size of its id
_BATCH_DOCUMENTS, _BATCH_CHARACTERS = 512, 1 << 20
_CHUNK = 1 << 23


@dataclass(frozen=True)
class TokenPart:
    """A block that is on disk, the lines of each of its pieces, its digest, and whether an earlier build made it."""

    number: int
    num_documents: int
    num_tokens: int
    id_bytes: int
    lines: tuple[int, ...]
    digest: str
    was_there: bool = False


@dataclass(frozen=True)
class TokenJob:
    """What a build does, as ``build_tokens`` was asked, in blocks; a function of its number for every executor."""

    out: Path
    files: tuple[InputFile, ...]
    tokenizer: TokenizerRef
    field: str
    split: str
    block_bytes: int
    id_field: str = ""

    @cached_property
    def blocks(self) -> list[InputBlock]:
        """The blocks, in the order of the store."""
        return cut_blocks(self.files, self.split, self.block_bytes)

    @cached_property
    def file_numbers(self) -> dict[str, int]:
        """The place of each file among all, by its name."""
        return {file.name: number for number, file in enumerate(self.files)}

    @property
    def folder(self) -> Path:
        """Where the parts are until they are joined."""
        return self.out.with_name(f"{self.out.name}.parts")

    @cached_property
    def _way(self) -> list[Any]:
        return [PARTS_VERSION, self.field, self.split, self.id_field, *self.tokenizer.identity()]

    def made_of(self, number: int) -> str:
        """Return what a block depends on: the same again, the same bytes."""
        pieces = [[p.file.name, p.file.size, p.file.modified, p.start, p.stop] for p in self.blocks[number].pieces]
        return fingerprint([self._way, pieces])

    def dtype(self) -> np.dtype[Any]:
        """Return the type of the tokens on disk."""
        return smallest_dtype(self.tokenizer.get().vocab_size)

    def data(self, number: int) -> Path:
        """Return the file of a part."""
        return self.folder / f"{number:06d}.bin"

    def record(self, number: int) -> Path:
        """Return the file that says that a part is whole."""
        return self.folder / f"{number:06d}.json"

    def __call__(self, number: int) -> TokenPart:
        """Make a block, unless it is there."""
        found = finished_part(self, number)
        if found is not None and _digest_of(self.data(number)) == found.digest:
            return replace(found, was_there=True)
        return _write_part(self, number)


def finished_part(job: TokenJob, number: int) -> TokenPart | None:
    """Return the part of a block that is there and was made of the same; its digest is not looked at."""
    path = job.record(number)
    if not path.is_file():
        return None
    try:
        origin = Origin(path, SourceError)
        fields = origin.record(origin.read(1 << 16))
        if fields.text("made_of") != job.made_of(number):
            return None
        part = TokenPart(number, **fields.read(_FIELDS))
    except SourceError:  # whatever is wrong with it, it is made again
        return None
    data = job.data(number)
    size = part.num_tokens * job.dtype().itemsize + 8 * _NUMBERS * part.num_documents + part.id_bytes
    return part if data.is_file() and data.stat().st_size == size else None


_NUMBER = partial(Fields.integer, low=0, high=MOST)
_FIELDS: FieldTable = {
    **dict.fromkeys(("num_documents", "num_tokens", "id_bytes"), _NUMBER),
    "lines": partial(Fields.integers, low=0, high=MOST),
    "digest": partial(Fields.hexadecimal, digits=32),
}


def mapped_part(job: TokenJob, part: TokenPart) -> tuple[NDArray[Any], NDArray[Any], bytes]:
    """Return the tokens of a part, a row of numbers for each document, and their ids one after the other."""
    data, dtype = job.data(part.number), job.dtype()
    content = np.memmap(data, np.uint8, "r") if data.stat().st_size else np.zeros(0, np.uint8)
    size = part.num_tokens * dtype.itemsize
    end = size + 8 * _NUMBERS * part.num_documents
    numbers = np.frombuffer(content[size:end].tobytes(), "<i8").reshape(-1, _NUMBERS)
    return np.asarray(content[:size]).view(dtype), numbers, content[end:].tobytes()


def check_digest(job: TokenJob, part: TokenPart) -> None:
    """Refuse a part that is not what was written."""
    if _digest_of(job.data(part.number)) != part.digest:
        job.record(part.number).unlink(missing_ok=True)
        raise SourceError(
            f"{job.data(part.number)} is not what was written: its digest is wrong. Run the same again; the block is "
            "made anew."
        )


def _digest_of(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while content := file.read(_CHUNK):
            digest.update(content)
    return digest.hexdigest()


def _write_part(job: TokenJob, number: int) -> TokenPart:
    tokenizer, dtype = job.tokenizer.get(), job.dtype()
    digest = hashlib.blake2b(digest_size=16)
    rows: list[tuple[int, int, int, int]] = []
    own: list[bytes] = []
    lines: list[int] = []
    pieces = job.blocks[number].pieces
    documents = read_documents(pieces, field=job.field, split=job.split, id_field=job.id_field, lines=lines)
    with written_aside(job.data(number)) as file:
        for batch in _batches(documents):
            ids = _encoded(tokenizer, batch)
            content = np.concatenate([a.astype(dtype, copy=False) for a in ids]).tobytes()
            file.write(content)
            digest.update(content)
            rows += [(len(i), job.file_numbers[d.file], d.line, len(d.id)) for i, d in zip(ids, batch, strict=True)]
            own += [document.id for document in batch]
        content = np.array(rows, "<i8").tobytes() + b"".join(own)
        file.write(content)
        digest.update(content)
    sizes = len(rows), sum(row[0] for row in rows), sum(map(len, own))
    part = TokenPart(number, *sizes, tuple(lines), digest.hexdigest())
    said = {k: v for k, v in asdict(part).items() if k not in ("number", "was_there")}
    write_aside(job.record(number), json_bytes({"made_of": job.made_of(number), **said}))
    return part


def _batches(documents: Iterator[TextDocument]) -> Iterator[list[TextDocument]]:
    """Yield documents in groups of a bounded size."""
    held: list[TextDocument] = []
    size = 0
    for document in documents:
        held.append(document)
        size += len(document.content)
        if len(held) >= _BATCH_DOCUMENTS or size >= _BATCH_CHARACTERS:
            yield held
            held, size = [], 0
    if held:
        yield held


def _encoded(tokenizer: Tokenizer, documents: list[TextDocument]) -> list[NDArray[Any]]:
    """Return the checked ids of some documents: texts through the tokenizer, ready ids as they are."""
    texts = [document.content for document in documents if isinstance(document.content, str)]
    made = iter(
        tokenizer.encode_batch(texts) if isinstance(tokenizer, BatchTokenizer) else map(tokenizer.encode, texts)
    )
    found = []
    for document in documents:
        ids = next(made) if isinstance(document.content, str) else document.content
        found.append(checked_ids(ids, tokenizer.vocab_size, document.name))
    return found
