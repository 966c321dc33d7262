"""The token stores behind runs, ready to be looked up in, and the text of a question as their tokens."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import ConfigError, LadingError
from lading.order.packing.index import PackingIndex
from lading.report.asked import AskedRun
from lading.report.uses import uses_of
from lading.runtime.fields import listed
from lading.source.tokens.store import TokenStore, shown_tokens
from lading.source.tokens.tokenizer import Tokenizer, load_tokenizer
from lading.source.tokens.trace_index import TraceIndex, TracePlace, maximal_spans

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class TracedRun:
    """A run that is asked: as it was at a checkpoint, and as it is now.

    Attributes:
        run: What the model learned from.
        whole: The run with what came later; the same where a run is asked.
    """

    run: AskedRun
    whole: AskedRun


@dataclass(frozen=True)
class TracedDataset:
    """A dataset of a run whose documents lie in a token store."""

    asked: TracedRun
    number: int
    packing: PackingIndex | None

    def uses(self, place: TracePlace) -> tuple[list[dict[str, Any]], int]:
        """Return the updates that used the tokens at a place, and how often they were used after the checkpoint."""
        rows = [place.document] if self.packing is None else self._rows(self.packing, place)
        document = None if self.packing is None else place.document
        used = uses_of(self.asked.run, self.number, rows, document)
        same = self.asked.whole is self.asked.run
        later = 0 if same else len(uses_of(self.asked.whole, self.number, rows, document))
        return used, max(later - len(used), 0)

    def _rows(self, packing: PackingIndex, place: TracePlace) -> list[int]:
        pieces = packing.rows_of_document(place.document)
        stop = place.start + place.size
        return [p.row for p in pieces if p.start < stop and place.start < p.start + p.size]


class Corpus:
    """A token store with its index, and the datasets that are made of it.

    Args:
        datasets: The datasets of the runs that are asked.
        tokenizer: What made its tokens; None: as the store says.
    """

    def __init__(self, path: Path, datasets: list[TracedDataset], tokenizer: str | Tokenizer | None) -> None:
        self.index, self.datasets, self._given = TraceIndex(path), datasets, tokenizer
        self.store: TokenStore = self.index.store

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """What makes tokens of a text, as those of the store were made."""
        name = self.store.tokenizer if self._given is None else self._given
        try:
            found = load_tokenizer(name) if isinstance(name, str) else name
        except LadingError as error:
            raise ConfigError(
                f"{self.store.path} was made with the tokenizer {self.store.tokenizer!r}, which cannot be found here "
                f"({error}). Pass --tokenizer (tokenizer= in Python) as it was given to lading tokens build, or --ids."
            ) from error
        if found.vocab_size != self.store.vocab_size:
            raise ConfigError(
                f"the tokenizer has {found.vocab_size} ids, the store at {self.store.path} {self.store.vocab_size}: "
                "it is not the one that made its tokens."
            )
        return found

    def readings(self, text: str) -> list[Ids]:
        """Return a text as tokens: as it is, and as it reads behind a blank, where that makes other tokens."""
        texts = [text] if self.store.tokenizer == "byte" else [text, f" {text.lstrip()}"]
        return [np.asarray(self.tokenizer.encode(one), np.int64) for one in texts]

    def spans(self, readings: Iterable[Ids], least: int) -> tuple[Ids, list[tuple[int, int]]]:
        """Return the reading of which most is found, and its spans that cannot be made longer."""
        found = [(ids, list(maximal_spans(self.index, ids, least))) for ids in readings]
        return max(found, key=lambda one: covered(one[1]) / max(len(one[0]), 1))

    def shown(self, ids: Ids) -> str:
        """Return tokens as text where that can be done, else as numbers."""
        decode = None
        with contextlib.suppress(ConfigError):  # ids can be traced without it
            decode = getattr(self.tokenizer, "decode", None) if self.store.tokenizer != "byte" else None
        return shown_tokens(ids, self.store.tokenizer) if decode is None else str(decode(ids.tolist()))

    def name(self, document: int) -> str | None:
        """Return what a document is called; None where that is not known."""
        return self.store.name(document) or None


def corpora_of(asked: Iterable[TracedRun], tokenizer: str | Tokenizer | None = None) -> tuple[list[Corpus], list[str]]:
    """Return the stores behind some runs, and sentences about those that cannot be looked up in."""
    found: dict[Path, list[TracedDataset]] = {}
    unknown: list[str] = []
    for one in asked:
        for number, name in one.run.named_datasets:
            known = one.run.documents.corpus(number)
            if known.store is None or not (known.store / "tokens.json").exists():
                why = one.run.documents.missing.get(name)
                unknown.append(why or f"dataset {name!r} lies in no token store: nothing says what its samples hold")
            else:
                found.setdefault(known.store.absolute(), []).append(TracedDataset(one, number, known.packing))
    if not found:
        raise ConfigError(
            f"nothing can be looked up: {listed(unknown, 3) or 'the run has no datasets by name'}. Trace needs a token "
            "store (lading tokens build) with an index (lading tokens index)."
        )
    return [Corpus(path, datasets, tokenizer) for path, datasets in found.items()], list(dict.fromkeys(unknown))


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return how many places some spans cover, in order of their beginnings.

    >>> covered([(0, 4), (2, 6), (8, 9)])
    7
    """
    total = end = 0
    for start, stop in spans:
        total, end = total + max(stop - max(start, end), 0), max(end, stop)
    return total
