"""Which documents hold a text word for word, and which updates learned from them.

text ─▶ tokens ─▶ the longest spans that the store holds ─▶ their places ─▶ documents ─▶ rows ─▶ updates
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from lading.errors import ConfigError
from lading.report.trace.corpora import Corpus, Ids, TracedRun, corpora_of
from lading.source.tokens.tokenizer import Tokenizer
from lading.source.tokens.trace_index import TracePlace

LEAST, LIMIT = 8, 50


@dataclass(frozen=True)
class TracedPlace:
    """A place of the corpus that holds a span.

    Attributes:
        dataset: Name of the dataset.
        document: Number of the document in its store.
        id: What it is called, where that is known.
        start: First token of the span in it.
        uses: The updates that used it: run, index (of the row), step, update, epoch, attempt.
        later: How often it was used after the checkpoint that was asked about.
    """

    dataset: str
    document: int
    id: str | None
    start: int
    uses: tuple[dict[str, Any], ...]
    later: int = 0

    @property
    def what(self) -> str:
        """What became of it, in a few words."""
        if self.uses:
            updates = [use["update"] for use in self.uses if use["update"] is not None]
            unit, numbers = ("update", updates) if updates else ("step", [use["step"] for use in self.uses])
            when = f"{unit} {numbers[0]}" if len(numbers) == 1 else f"{unit}s {min(numbers)} to {max(numbers)}"
            return f"used {len(self.uses)} time{'s' * (len(self.uses) != 1)}, {when}"
        return "used only later" if self.later else "in the corpus, never used"


@dataclass(frozen=True)
class TracedSpan:
    """A span of the text that documents hold, and that cannot be made longer.

    Attributes:
        start: Its first token in the text.
        stop: The token behind its last.
        text: What it reads.
        found: How many places hold it.
        places: The first of them.
    """

    start: int
    stop: int
    text: str
    found: int
    places: tuple[TracedPlace, ...]


@dataclass(frozen=True)
class Trace:
    """Where the tokens of a text come from.

    Attributes:
        tokens: Tokens of the text.
        spans: What was found of it.
        unknown: Sentences about what could not be looked at.
    """

    tokens: int
    spans: tuple[TracedSpan, ...]
    unknown: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able fields."""
        return asdict(self)


def trace(
    asked: Iterable[TracedRun],
    text: str | None = None,
    *,
    ids: Sequence[int] | None = None,
    least: int = LEAST,
    limit: int = LIMIT,
    tokenizer: str | Tokenizer | None = None,
) -> Trace:
    """Return the spans of a text, or of token ids, that the corpora of some runs hold.

    Args:
        ids: Tokens instead of a text.
        least: Tokens of the shortest span that counts.
        limit: Places listed of each span; all are counted.
        tokenizer: What made the tokens of the stores; None: as they say.
    """
    if (text is None) == (ids is None) or not (text if ids is None else len(ids)):
        raise ConfigError("what is to be traced? Expected a text that is not empty, or token ids.")
    if least < 1 or limit < 1:
        raise ConfigError(f"least={least}, limit={limit}: expected at least 1.")
    corpora, unknown = corpora_of(asked, tokenizer)
    spans: list[TracedSpan] = []
    tokens = 0
    for corpus in corpora:
        readings = corpus.readings(text or "") if ids is None else [_checked(corpus, ids)]
        reading, found = corpus.spans(readings, least)
        tokens = max(tokens, len(reading))
        spans += [_traced(corpus, reading, start, stop, limit) for start, stop in found]
    return Trace(tokens, tuple(sorted(spans, key=lambda s: (s.start, s.stop))), tuple(unknown))


def _checked(corpus: Corpus, ids: Sequence[int]) -> Ids:
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= corpus.store.vocab_size:
        raise ConfigError(
            f"ids are {list(ids)[:5]}: expected integers from 0 to {corpus.store.vocab_size - 1}, the vocabulary of "
            f"{corpus.store.path}."
        )
    return array.astype(np.int64)


def _traced(corpus: Corpus, reading: Ids, start: int, stop: int, limit: int) -> TracedSpan:
    places = corpus.index.places(reading[start:stop])
    listed = tuple(traced for place in places[:limit] for traced in traced_places(corpus, place))
    return TracedSpan(start, stop, corpus.shown(reading[start:stop]), len(places), listed)


def traced_places(corpus: Corpus, place: TracePlace) -> list[TracedPlace]:
    """Return a place with the updates that used it, once for each dataset that is made of the store."""
    named: dict[str, tuple[list[dict[str, Any]], int]] = {}
    for dataset in corpus.datasets:
        uses, later = dataset.uses(place)
        name = dataset.asked.run.datasets[dataset.number]
        before = named.get(name, ([], 0))
        named[name] = before[0] + [use for use in uses if use not in before[0]], before[1] + later
    document, start, _ = place
    return [
        TracedPlace(name, document, corpus.name(document), start, tuple(uses), later)
        for name, (uses, later) in named.items()
    ]
