"""Check what a JASPER dataset is built from before time is spent on it, and what came out before it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lading.errors import SourceError
from lading.source.jasper_inputs import F32, I64, Pairs
from lading.source.jasper_layout import KEYWORDS_FILE, TABLES, split_table
from lading.source.jasper_validate import (
    check_contents,
    check_ids,
    check_keywords,
    check_references,
    check_rows,
    check_shape,
    check_split,
)


@dataclass(frozen=True)
class Vectors:
    """Embeddings of all questions, sources and keywords."""

    questions: F32
    sources: F32
    keywords: F32


def check_inputs(pairs: Pairs, vectors: Vectors) -> None:
    """Refuse embeddings and pairs that do not fit together, naming the row."""
    size = vectors.questions.shape[1]
    for name, array in (("question", vectors.questions), ("source", vectors.sources), ("keyword", vectors.keywords)):
        if array.shape[1] != size:
            raise SourceError(f"{name} embeddings have {array.shape[1]} dimensions, expected {size} as the questions.")
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
        if len(bad):
            raise SourceError(f"{name} embedding {bad[0]} holds NaN or Inf. Check how it was made, or leave it out.")
    for column, name, pool in ((0, "question", vectors.questions), (1, "source", vectors.sources)):
        numbers = torch.from_numpy(np.ascontiguousarray(pairs.index[:, column]))
        check_ids(numbers, f"pair_index references {name}", name, len(pool), "pairs")
    check_keywords(pairs.keywords, len(pairs.index), len(vectors.keywords), "keywords of the pairs")
    bad = np.flatnonzero(~((pairs.relevance >= 0) & (pairs.relevance <= 1)))
    if len(bad):
        raise SourceError(f"relevance is {pairs.relevance[bad[0]]:g} in row {bad[0]} of the pairs, expected 0 to 1.")


def cluster_ids(given: Any, name: str, rows: int, count: int | None) -> I64:
    """Return given clusters as numbers; ``count`` None: as many as they number."""
    ids = np.asarray(given)
    if ids.shape != (rows,) or ids.dtype.kind not in "iu":
        raise SourceError(f"{name} are {ids.dtype} of shape {ids.shape}, expected {rows} whole numbers.")
    numbers = ids.astype(np.int64)
    highest = int(numbers.max()) + 1 if count is None else count
    check_ids(torch.from_numpy(numbers), f"{name} references cluster", "cluster", highest, name)
    return numbers


def check_result(tables: dict[str, Tensor], splits: dict[str, I64], keyword_ids: list[list[int]], n_neg: int) -> None:
    """Refuse to write what could not be read."""
    dimensions, num_pairs = tables["question_embs"].shape[1], len(tables["pair_index"])
    for table in TABLES:
        check_shape(tables[table.name], table, table.file, dimensions, n_neg)
    for split, numbers in splits.items():
        check_split(torch.from_numpy(numbers), split, split_table(split).file, num_pairs)
    check_references(tables, lambda table: table.file)
    check_rows(tables, lambda table: table.file)
    check_contents(tables, lambda table: table.file)
    check_keywords(keyword_ids, num_pairs, len(tables["keyword_embs"]), KEYWORDS_FILE)
