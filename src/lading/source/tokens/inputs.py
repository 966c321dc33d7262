"""Which files a corpus is made of, and how they are cut into blocks.

    a.jsonl  |----------|----------|---|     cut by bytes; a line belongs to the block in which it starts
    b.txt    |---------------|               split="file": a file is never cut
    c.gz     |---------------|               nor is a compressed one
    blocks   0          1          2 (the rest of a, b, c)

Blocks are a function of the files alone, so every process that is given the same files finds the same blocks.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lading.errors import ConfigError, SourceError
from lading.runtime.fields import shown
from lading.runtime.paths import local_path

COMPRESSED = (".gz", ".zst")
LINES, PARQUET, TEXT = "lines", "parquet", "text"
_KINDS = {".jsonl": LINES, ".ndjson": LINES, ".parquet": PARQUET}
_LEAST_BLOCK, _MOST_BLOCK, _BLOCKS = 1 << 20, 1 << 28, 1024


@dataclass(frozen=True)
class InputFile:
    """A file of a corpus.

    Attributes:
        name: As it was given, for errors.
        path: Where it is, whatever the working directory.
        size: Bytes.
        modified: When it was changed, in nanoseconds.
    """

    name: str
    path: str
    size: int
    modified: int

    @property
    def compression(self) -> str:
        """``.gz``, ``.zst``, or nothing."""
        suffix = Path(self.path).suffix
        return suffix if suffix in COMPRESSED else ""

    @property
    def kind(self) -> str:
        """``lines`` (JSONL), ``parquet`` or ``text``."""
        return _KINDS.get(Path(self.path.removesuffix(self.compression)).suffix, TEXT)


@dataclass(frozen=True)
class FilePiece:
    """The part of a file that starts in a range of bytes."""

    file: InputFile
    start: int
    stop: int


@dataclass(frozen=True)
class InputBlock:
    """What one block reads."""

    pieces: tuple[FilePiece, ...]

    @property
    def size(self) -> int:
        """Bytes of it on disk."""
        return sum(piece.stop - piece.start for piece in self.pieces)


def find_inputs(given: Iterable[str | Path]) -> list[InputFile]:
    """Return the files behind names and patterns (``corpus/**/*.jsonl.zst``), in order; a pattern's are sorted."""
    found: dict[str, InputFile] = {}
    for name in given:
        for path in _matching(str(local_path(name))):
            file = _input_file(path)
            if file.path in found:
                raise ConfigError(
                    f"{shown(path)} is given twice, the second time by {shown(str(name))}: its documents would be in "
                    "the store twice. Name it once; weights repeat what should be seen more often."
                )
            found[file.path] = file
    if not found:
        raise ConfigError("there are no files to read. Name at least one text, JSONL or Parquet file.")
    return list(found.values())


def _matching(name: str) -> list[str]:
    if os.path.exists(name) or not glob.has_magic(name):
        return [name]
    paths = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
    if not paths:
        raise ConfigError(f"no file matches {shown(name)}. Check the pattern; ** stands for folders at any depth.")
    return paths


def _input_file(name: str) -> InputFile:
    if not os.path.isfile(name):
        raise SourceError(
            f"{shown(name)} is no file. Check the name; directories are given as their files (corpus/*.txt)."
        )
    state = os.stat(name)
    file = InputFile(name, os.path.abspath(name), state.st_size, state.st_mtime_ns)
    if file.compression and file.kind == PARQUET:
        raise SourceError(f"{shown(name)} is a compressed Parquet file. Unpack it; Parquet compresses by itself.")
    return file


def default_block_bytes(files: Iterable[InputFile]) -> int:
    """Return the size of blocks: about a thousandth of the corpus, from 1 MB to 256 MB.

    A power of two, so that a file that was corrected leaves most blocks as they were.
    """
    thousandth = sum(file.size for file in files) // _BLOCKS
    return min(max(1 << thousandth.bit_length(), _LEAST_BLOCK), _MOST_BLOCK)


def cut_blocks(files: Iterable[InputFile], split: str, block_bytes: int) -> list[InputBlock]:
    """Return the blocks of a corpus, each of about so many bytes; one at least."""
    blocks: list[InputBlock] = []
    held: list[FilePiece] = []
    for piece in _pieces(files, split, block_bytes):
        held.append(piece)
        if sum(p.stop - p.start for p in held) >= block_bytes or len(held) >= _BLOCKS:
            blocks.append(InputBlock(tuple(held)))
            held = []
    return [*blocks, InputBlock(tuple(held))] if held or not blocks else blocks


def _pieces(files: Iterable[InputFile], split: str, block_bytes: int) -> Iterator[FilePiece]:
    for file in files:
        is_whole = bool(file.compression) or (file.kind == TEXT and split == "file")
        step = max(file.size, 1) if is_whole else block_bytes
        for start in range(0, max(file.size, 1), step):
            yield FilePiece(file, start, min(start + step, max(file.size, 1)))
