"""How often each sample and each document was used, and when first and last: for those who answer for a model.

    samples of history ─▶ exposures    by sample: times, first and last step and update
    pieces of rows     ─▶ documents    the same by document: the uses of every row that holds a part of it

Both are worked out by DuckDB as the samples come, in bounded memory; what was never used is not in them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from lading.errors import ConfigError
from lading.order.packing.index import PackingIndex
from lading.report.documents import RunDocuments
from lading.report.views import Views

_PIECES = pa.schema([("dataset", pa.int32()), ("index", pa.int64()), ("document", pa.int64())])
_TIMES = ("first_step", "last_step", "first_update", "last_update")
_ROWS_AT_ONCE = 1 << 18
_EXPOSED = """
SELECT dataset, any_value(name) AS name, index, count(*)::BIGINT AS times, min(step) AS first_step,
       max(step) AS last_step, min(update) AS first_update, max(update) AS last_update
FROM samples JOIN history USING (attempt, step) WHERE step < {until} GROUP BY dataset, index
"""
_HELD = """
WITH exposed AS MATERIALIZED ({exposed}),
held AS (SELECT exposed.*, document FROM pieces JOIN exposed USING (dataset, index)
         UNION ALL SELECT *, index AS document FROM exposed ANTI JOIN packed USING (dataset))
SELECT dataset, any_value(name) AS name, document, sum(times)::BIGINT AS times, min(first_step) AS first_step,
       max(last_step) AS last_step, min(first_update) AS first_update, max(last_update) AS last_update
FROM held GROUP BY dataset, document ORDER BY dataset, document
"""


def exposures(views: Views, documents: RunDocuments, until: int) -> Iterator[pa.RecordBatch]:
    """Yield dataset, name, index, id, times, first and last of every sample that was used before a step.

    Args:
        views: The run, ``samples`` among its views.
        documents: Says what samples are called; rows of several documents have no name of their own.
        until: The step.
    """
    for batch in views.stream(f"FROM ({_EXPOSED.format(until=until)}) ORDER BY dataset, index"):
        yield _named(batch, "index", documents, packed=False)


def documents_used(views: Views, documents: RunDocuments, numbers: list[int], until: int) -> Iterator[pa.RecordBatch]:
    """Yield dataset, name, document, id, times, first and last of every document of which a part was used.

    Args:
        views: The run, ``samples`` among its views.
        documents: Says which rows hold which documents, and what they are called.
        numbers: The datasets.
        until: Only uses before this step count.
    """
    packed = [number for number in numbers if _packing(documents, number) is not None]
    if documents.missing and any(documents.corpus(number) is None for number in numbers):
        raise ConfigError(next(iter(documents.missing.values())))
    views.register("packed", pa.table({"dataset": pa.array(packed, pa.int32())}))
    views.register("pieces", pa.RecordBatchReader.from_batches(_PIECES, _pieces(documents, packed)))
    for batch in views.stream(_HELD.format(exposed=_EXPOSED.format(until=until))):
        yield _named(batch, "document", documents, packed=True)


def _packing(documents: RunDocuments, number: int) -> PackingIndex | None:
    """Return which documents the rows of a dataset hold; None where a row is a document of its own."""
    corpus = documents.corpus(number)
    return None if corpus is None else corpus.packing


def _pieces(documents: RunDocuments, packed: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield which documents the rows of packed datasets hold, each once a row."""
    for number in packed:
        index = _packing(documents, number)
        assert index is not None  # it was asked for
        for first in range(0, len(index), _ROWS_AT_ONCE):
            offsets = index.row_offsets[first : first + _ROWS_AT_ONCE + 1]
            held = index.document[int(offsets[0]) : int(offsets[-1])].astype(np.int64)
            rows = np.repeat(np.arange(first, first + len(offsets) - 1), np.diff(offsets))
            if len(rows) != len(held):
                raise ConfigError(f"the packing index at {index.path} is damaged. Delete its directory, make it again.")
            is_new = np.append(True, (np.diff(rows) != 0) | (np.diff(held) != 0))[: len(rows)]
            columns = [np.full(int(is_new.sum()), number), rows[is_new], held[is_new]]
            yield pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, _PIECES, strict=True)], schema=_PIECES)


def _named(batch: pa.RecordBatch, key: str, documents: RunDocuments, *, packed: bool) -> pa.RecordBatch:
    """Return rows with what they are called behind their numbers."""
    pairs = zip(batch["dataset"].to_pylist(), batch[key].to_pylist(), strict=True)
    names = [documents.name(n, d) if packed or _packing(documents, n) is None else None for n, d in pairs]
    columns = {"dataset": batch["dataset"], "name": batch["name"], key: batch[key], "id": pa.array(names, pa.string())}
    return pa.record_batch({**columns, **{name: batch[name] for name in ("times", *_TIMES)}})
