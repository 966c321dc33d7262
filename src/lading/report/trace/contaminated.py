"""Which items of a benchmark a model was trained on: how much of each, with its answer or not, and when."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lading.errors import ConfigError
from lading.report.trace.corpora import Corpus, Ids, TracedRun, corpora_of, covered
from lading.report.trace.trace import LIMIT, TracedPlace, traced_places
from lading.runtime.fields import Origin
from lading.source.tokens.tokenizer import Tokenizer
from lading.source.tokens.trace_index import TracePlace

GRAM = 13
_LONGEST = 1 << 20


@dataclass(frozen=True)
class FoundItem:
    """An item of a benchmark that the corpus holds.

    Attributes:
        line: Its line in the file, from 1.
        share: How much of its tokens is found.
        text: What is found, the longest span of it.
        with_answer: Whether a document holds the answer behind the question; None where no answer was given.
        places: The documents, and the updates that used them.
    """

    line: int
    share: float
    text: str
    with_answer: bool | None
    places: tuple[TracedPlace, ...]

    @property
    def is_used(self) -> bool:
        """Whether an update learned from it."""
        return any(place.uses for place in self.places)


@dataclass(frozen=True)
class Contamination:
    """What of a benchmark a corpus holds.

    Attributes:
        items: Items of the benchmark.
        short: Items of fewer tokens than an n-gram: looked for as a whole.
        found: Those that the corpus holds.
        unknown: Sentences about what could not be looked at.
    """

    items: int
    short: int
    found: tuple[FoundItem, ...]
    unknown: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return {**asdict(self), "used": sum(item.is_used for item in self.found)}


def contaminated(
    asked: Iterable[TracedRun],
    path: str | os.PathLike[str],
    field: str,
    *,
    answer: str | None = None,
    n: int = GRAM,
    limit: int = LIMIT,
    tokenizer: str | Tokenizer | None = None,
) -> Contamination:
    """Return the items of a benchmark of which a corpus holds ``n`` tokens side by side, or all where it has fewer.

    Args:
        path: The benchmark, an object a line.
        field: Key of the text of an item.
        answer: Key of its answer.
        n: Tokens side by side that count.
        limit: Places listed of each item.
        tokenizer: What made the tokens of the stores; None: as they say.
    """
    if n < 1 or limit < 1:
        raise ConfigError(f"n={n}, limit={limit}: expected at least 1.")
    corpora, unknown = corpora_of(asked, tokenizer)
    items = short = 0
    found: dict[int, FoundItem] = {}
    for line, question, expected in _items(Path(path), field, answer):
        items += 1
        short += all(len(reading) < n for corpus in corpora for reading in corpus.readings(question))
        for corpus in corpora:
            item = _found(corpus, line, question, expected, n, limit)
            if item is not None and (line not in found or item.share > found[line].share):
                found[line] = item
    return Contamination(items, short, tuple(found.values()), tuple(unknown))


def _items(path: Path, field: str, answer: str | None) -> Iterator[tuple[int, str, str | None]]:
    if not path.is_file():
        raise ConfigError(f"{path} is no file: expected a benchmark, a JSON object a line.")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                fields = Origin(f"{path}, line {number}", ConfigError, "Expected a JSON object a line.").record(line)
                texts = [fields.text(key, longest=_LONGEST) for key in (field, answer) if key is not None]
                yield number, texts[0], texts[1] if answer is not None else None


def _found(corpus: Corpus, line: int, question: str, answer: str | None, n: int, limit: int) -> FoundItem | None:
    readings = [ids for ids in corpus.readings(question) if len(ids)]
    if not readings:
        return None
    reading, spans = corpus.spans(readings, min(n, *(len(ids) for ids in readings)))
    if not spans:
        return None
    start, stop = max(spans, key=lambda span: span[1] - span[0])
    places = corpus.index.places(reading[start:stop])
    follows = None if answer is None else any(_is_answered(corpus, place, answer) for place in places)
    listed = tuple(traced for place in places[:limit] for traced in traced_places(corpus, place))
    share = covered(spans) / len(reading)
    return FoundItem(line, share, corpus.shown(reading[start:stop]), follows, listed)


def _is_answered(corpus: Corpus, place: TracePlace, answer: str) -> bool:
    """Say whether a document holds an answer behind the question."""
    rest = corpus.store[place.document][place.start + place.size :]
    return any(_holds(rest, ids) for ids in corpus.readings(answer))


def _holds(tokens: Any, ids: Ids) -> bool:
    if not 0 < len(ids) <= len(tokens):
        return False
    return bool((np.lib.stride_tricks.sliding_window_view(tokens, len(ids)) == ids).all(1).any())
