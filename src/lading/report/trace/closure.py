"""The documents that share text with others: forgetting one and keeping its copy forgets nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lading.report.asked import AskedRun
from lading.report.trace.corpora import Corpus, TracedRun, corpora_of


def same_text(run: AskedRun, documents: Iterable[tuple[int, int]], least: int) -> list[tuple[int, int]]:
    """Return (dataset, document) of every other document that shares so many tokens side by side with one of some."""
    asked = sorted(set(documents))
    corpora, _ = corpora_of([TracedRun(run, run)])
    found: set[tuple[int, int]] = set()
    for number, document in asked:
        own = next(corpus for corpus in corpora if any(d.number == number for d in corpus.datasets))
        tokens = own.store[document].astype(np.int64)
        if len(tokens) >= least:
            grams = np.lib.stride_tricks.sliding_window_view(tokens, least)
            found |= {pair for corpus in corpora for pair in _holders(corpus, grams, own)}
    return sorted(found - set(asked))


def _holders(corpus: Corpus, grams: np.ndarray, own: Corpus) -> set[tuple[int, int]]:
    if corpus is not own and corpus.store.tokenizer != own.store.tokenizer:
        return set()  # the same numbers would mean other texts
    holding = corpus.index.documents(grams)
    return {(dataset.number, document) for dataset in corpus.datasets for document in holding}
