"""Find every place of a store that holds some tokens: suffix arrays, in blocks of whole documents.

    block 0   documents 0 to 40 ─▶ their tokens, a mark after each document ─▶ suffixes sorted ─▶ where each starts
    block 1   documents 41 ...

    STORE/trace-<hash>/000000.bin     4 bytes a token: places in the block, in the order of what follows them
                       000000.json    what it was made of, and the digest of the .bin; written last

The mark sorts before every token, so nothing is found across two documents. A
block is the same bytes whoever makes it, and says what it was made of: a store
that was built again has a folder of another name.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lading.errors import SourceError
from lading.identity import fingerprint
from lading.runtime.arrays import mapped_array
from lading.runtime.blocks.progress import BlockProgress, Progress, silent
from lading.runtime.blocks.run import Task, run_blocks
from lading.runtime.fields import Origin
from lading.runtime.files import clean_up, json_bytes, make_folder, write_aside
from lading.source.tokens.pydivsufsort import sorted_suffixes
from lading.source.tokens.store import TokenStore
from lading.source.tokens.write import disk_errors

TRACE_VERSION = 1
BLOCK_TOKENS = 1 << 23
_MOST_AT_ONCE = 1 << 22

I64 = NDArray[np.int64]


class TokenBlock(NamedTuple):
    """Documents ``first`` to ``last``, the last not included, and their tokens ``start`` to ``stop``."""

    first: int
    last: int
    start: int
    stop: int


class TracePlace(NamedTuple):
    """A place in a store: ``size`` tokens of a document from ``start`` on."""

    document: int
    start: int
    size: int


@dataclass(frozen=True)
class TraceJob:
    """What makes the index of a store, in blocks; a function of its number for every executor."""

    path: Path
    block_tokens: int = BLOCK_TOKENS

    @functools.cached_property
    def store(self) -> TokenStore:
        return TokenStore(self.path, validate=False)

    @functools.cached_property
    def blocks(self) -> list[TokenBlock]:
        """Whole documents with about so many tokens, in the order of the store."""
        offsets, found, first = self.store.offsets, [], 0
        while first < len(self.store):
            start = int(offsets[first])
            last = int(np.searchsorted(offsets, start + self.block_tokens, side="right")) - 1
            last = min(max(last, first + 1), len(self.store))
            found.append(TokenBlock(first, last, start, int(offsets[last])))
            first = last
        return found

    @functools.cached_property
    def folder(self) -> Path:
        """Where the index lies: another store, another folder."""
        made = fingerprint([TRACE_VERSION, self.store.fingerprint(), self.store.vocab_size, self.block_tokens])
        return self.path / f"trace-{made}"

    def data(self, number: int) -> Path:
        """Return the file of a block."""
        return self.folder / f"{number:06d}.bin"

    def made_of(self, number: int) -> str:
        """Return what a block depends on."""
        return fingerprint([self.folder.name, list(self.blocks[number])])

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "block_tokens": self.block_tokens}

    def __call__(self, number: int) -> bool:
        """Make a block; return whether it was there already."""
        digest = _finished(self, number)
        if digest is not None and hashlib.sha256(self.data(number).read_bytes()).hexdigest() == digest:
            return True
        content = _sorted_block(self.store, self.blocks[number]).tobytes()
        write_aside(self.data(number), content)
        digest = hashlib.sha256(content).hexdigest()
        record = {"made_of": self.made_of(number), "digest": digest}
        write_aside(self.data(number).with_suffix(".json"), json_bytes(record))
        return False


def _finished(job: TraceJob, number: int) -> str | None:
    """Return the digest of a block that is there and was made of the same; None where it is not."""
    path, data = job.data(number).with_suffix(".json"), job.data(number)
    try:
        origin = Origin(path, SourceError)
        fields = origin.record(origin.read(1 << 12))
        digest = fields.hexadecimal("digest", digits=64)
        is_same = fields.text("made_of") == job.made_of(number)
    except (SourceError, OSError):  # whatever is wrong with it, it is made again
        return None
    block = job.blocks[number]
    size = (block.stop - block.start) * _dtype(block).itemsize
    return digest if is_same and data.is_file() and data.stat().st_size == size else None


def _dtype(block: TokenBlock) -> np.dtype[Any]:
    return np.dtype("<u4" if block.stop - block.start < 1 << 32 else "<u8")


def _sorted_block(store: TokenStore, block: TokenBlock) -> NDArray[Any]:
    """Return the places of a block's tokens in the order of what follows them in their documents."""
    size, documents = block.stop - block.start, block.last - block.first
    ends = store.offsets[block.first + 1 : block.last + 1] - block.start
    marks = ends + np.arange(documents)
    is_token = np.ones(size + documents, bool)
    is_token[marks] = False
    text = np.zeros(size + documents, ">u4")
    text[is_token] = store.tokens[block.start : block.stop].astype(np.uint32) + 1  # 0 is the mark
    width = max((int(store.vocab_size).bit_length() + 7) // 8, 1)  # bytes that hold a token and the mark
    suffixes = sorted_suffixes(np.ascontiguousarray(text.view(np.uint8).reshape(-1, 4)[:, 4 - width :]).reshape(-1))
    aligned = suffixes[suffixes % width == 0] // width
    aligned = aligned[is_token[aligned]]
    places = (np.cumsum(is_token) - 1).astype(_dtype(block))
    found: NDArray[Any] = places[aligned]
    return found


def index_tokens(
    path: str | Path,
    *,
    workers: int = 1,
    on: str = "local",
    task: Task | None = None,
    block_tokens: int = BLOCK_TOKENS,
    progress: Progress = silent,
) -> TraceIndex | None:
    """Make the index of a token store, in which ``lading trace`` looks up; run again, it resumes.

    Args:
        workers: Blocks worked on at once.
        on: ``local``: processes of this machine; ``ray``: tasks of a Ray cluster.
        task: Only the blocks of one of several tasks; the result is the same.
        block_tokens: Tokens of a block, about.
        progress: Called with the share that is done and a sentence.

    Returns:
        The index, or None while blocks of other tasks are missing.
    """
    job = TraceJob(TokenStore(path, validate=False).path.absolute(), block_tokens)
    numbers = range(len(job.blocks)) if task is None else task.share(range(len(job.blocks)))
    with disk_errors(job.folder, " Finished blocks are kept."):
        make_folder(job.folder)
        clean_up(job.folder)
        pace = BlockProgress(len(numbers), sum(job.blocks[n].stop - job.blocks[n].start for n in numbers))
        for number, was_there in run_blocks(job, numbers, workers=workers, on=on):
            pace.add(job.blocks[number].stop - job.blocks[number].start, was_there=was_there)
            progress(pace.share, pace.text())
    return None if _missing(job) else TraceIndex(job.path, block_tokens=block_tokens)


def _missing(job: TraceJob) -> list[int]:
    return [number for number in range(len(job.blocks)) if _finished(job, number) is None]


class TraceIndex:
    """The places of a store's tokens, sorted by what follows them.

    Args:
        block_tokens: Tokens of a block, about, as it was made.
    """

    def __init__(self, path: str | Path, *, block_tokens: int = BLOCK_TOKENS) -> None:
        self.job = TraceJob(TokenStore(path, validate=False).path.absolute(), block_tokens)
        self.store = self.job.store
        missing = _missing(self.job)
        if missing:
            others = sorted(p.name for p in self.store.path.glob("trace-*") if p != self.job.folder)
            was = f" ({others[0]} is of what the store held before)" if others else ""
            raise SourceError(
                f"{self.store.path} has no index of what it holds now: {len(missing)} of {len(self.job.blocks)} "
                f"blocks are missing{was}. Make it with lading tokens index {self.store.path}."
            )
        self._sorted = [
            mapped_array(self.job.data(number), _dtype(block), block.stop - block.start)
            for number, block in enumerate(self.job.blocks)
        ]

    def holds(self, grams: NDArray[Any]) -> NDArray[np.bool_]:
        """Say of each of some equally long sequences of tokens [m, n] whether a document holds it."""
        found = np.zeros(len(grams), bool)
        rows = max(_MOST_AT_ONCE // max(grams.shape[1], 1), 1)
        for first in range(0, len(grams), rows):
            some = grams[first : first + rows].astype(np.int64)
            for number in range(len(self._sorted)):
                places = self._insertion(number, some)
                there = places < len(self._sorted[number])
                here = self._tokens(number, places[there], some.shape[1])
                found[first : first + rows][there] |= (here == some[there]).all(1)
        return found

    def longest(self, ids: NDArray[Any]) -> int:
        """Return how many of the first of some tokens a document holds side by side."""
        best, wanted = 0, ids.astype(np.int64)[None]
        for number, order in enumerate(self._sorted):
            place = int(self._insertion(number, wanted)[0])
            beside = np.arange(max(place - 1, 0), min(place + 1, len(order)))
            equal = self._tokens(number, beside, len(ids)) == wanted
            best = max([best, *np.where(equal.all(1), len(ids), equal.argmin(1)).tolist()])
        return best

    def places(self, ids: NDArray[Any]) -> list[TracePlace]:
        """Return every place that holds some tokens, in the order of the store."""
        found = [self._found(number, ids.astype(np.int64)[None]) for number in range(len(self._sorted))]
        places = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
        documents = np.searchsorted(self.store.offsets, places, side="right") - 1
        starts = places - self.store.offsets[documents]
        return [TracePlace(d, s, len(ids)) for d, s in zip(documents.tolist(), starts.tolist(), strict=True)]

    def documents(self, grams: NDArray[Any]) -> set[int]:
        """Return every document that holds one of some equally long sequences of tokens [m, n]."""
        found: set[int] = set()
        wanted = grams.astype(np.int64)
        for number, order in enumerate(self._sorted):
            bounds = np.unique(
                np.stack([self._insertion(number, wanted), self._insertion(number, wanted, after=True)], 1), axis=0
            )
            for first, stop in bounds[bounds[:, 0] < bounds[:, 1]].tolist():
                places = order[first:stop].astype(np.int64) + self.job.blocks[number].start
                found |= set((np.searchsorted(self.store.offsets, places, side="right") - 1).tolist())
        return found

    def _found(self, number: int, wanted: I64) -> I64:
        first, stop = int(self._insertion(number, wanted)[0]), int(self._insertion(number, wanted, after=True)[0])
        return self._sorted[number][first:stop].astype(np.int64) + self.job.blocks[number].start

    def _insertion(self, number: int, wanted: I64, *, after: bool = False) -> I64:
        """Return before which suffix of a block each sequence belongs; ``after``: behind those that begin with it."""
        low = np.zeros(len(wanted), np.int64)
        high = np.full(len(wanted), len(self._sorted[number]), np.int64)
        while (open_ := np.flatnonzero(low < high)).size:
            middle = (low[open_] + high[open_]) // 2
            here, asked = self._tokens(number, middle, wanted.shape[1]), wanted[open_]
            differs = here != asked
            at = differs.argmax(1)[:, None]
            sign = np.take_along_axis(here, at, 1)[:, 0] - np.take_along_axis(asked, at, 1)[:, 0]  # 0 where equal
            is_before = sign <= 0 if after else sign < 0
            low[open_] = np.where(is_before, middle + 1, low[open_])
            high[open_] = np.where(is_before, high[open_], middle)
        return low

    def _tokens(self, number: int, order: I64, size: int) -> I64:
        """Return the tokens that follow some suffixes' beginnings; -1 behind the ends of their documents."""
        block, offsets, tokens = self.job.blocks[number], self.store.offsets, self.store.tokens
        starts = self._sorted[number][order].astype(np.int64) + block.start
        ends = offsets[np.searchsorted(offsets, starts, side="right")]
        places = starts[:, None] + np.arange(size)
        found: I64 = tokens[np.minimum(places, len(tokens) - 1)].astype(np.int64)
        found[places >= ends[:, None]] = -1
        return found


def maximal_spans(index: TraceIndex, ids: NDArray[Any], least: int) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the spans of some tokens that a document holds and that cannot be made longer."""
    if len(ids) < least:
        return
    grams = np.lib.stride_tricks.sliding_window_view(ids, least)
    starts = np.flatnonzero(index.holds(grams)).tolist()
    at = 0
    while at < len(starts):
        start = starts[at]
        stop = start + index.longest(ids[start:])
        yield start, stop
        if stop == len(ids):
            return
        # The next one is the first that reaches further: if one does, so do all that begin inside it.
        inside = bisect.bisect_right(starts, stop - least)
        reaches = functools.partial(_reaches, index, ids, starts, stop + 1)
        at = bisect.bisect_left(range(inside), True, at + 1, key=reaches)


def _reaches(index: TraceIndex, ids: NDArray[Any], starts: list[int], stop: int, at: int) -> bool:
    return bool(index.holds(ids[None, starts[at] : stop])[0])
