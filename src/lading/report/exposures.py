"""How often each sample and each document was used, and when first and last: for those who answer for a model.

    samples of history ─▶ exposures    by sample: times, first and last step and update
    pieces of rows     ─▶ documents    the same by document: the uses of every row that holds a part of it

Both are worked out by DuckDB as the samples come, in bounded memory; what was never used is not in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from lading.errors import ConfigError
from lading.order.packing.index import PackingIndex
from lading.report.documents import RunDocuments
from lading.report.views import Views

_PIECES = pa.schema([("dataset", pa.int32()), ("index", pa.int64()), ("documents", pa.large_list(pa.int64()))])
_ROWS_AT_ONCE = 1 << 18
_EXPOSED = """
SELECT dataset, any_value(name) AS name, index, count(*)::BIGINT AS times, min(step) AS first_step,
       max(step) AS last_step, min(update) AS first_update, max(update) AS last_update
FROM samples JOIN history USING (attempt, step) WHERE step < {until} GROUP BY dataset, index
"""
_HELD = """
WITH exposed AS MATERIALIZED ({exposed}),
held AS (SELECT exposed.*, document
           FROM (SELECT dataset, index, unnest(list_distinct(documents)) AS document FROM pieces) JOIN exposed
           USING (dataset, index)
         UNION ALL SELECT *, index AS document FROM exposed ANTI JOIN packed USING (dataset))
SELECT dataset, any_value(name) AS name, document, sum(times)::BIGINT AS times, min(first_step) AS first_step,
       max(last_step) AS last_step, min(first_update) AS first_update, max(last_update) AS last_update
FROM held GROUP BY dataset, document ORDER BY dataset, document
"""


def exposures(views: Views, documents: RunDocuments, until: int) -> Iterator[pa.RecordBatch]:
    """Yield dataset, name, index, id, times, first and last of every sample that was used before a step."""
    for batch in views.stream(f"FROM ({_EXPOSED.format(until=until)}) ORDER BY dataset, index"):
        yield _named(batch, "index", documents)


def documents_used(views: Views, documents: RunDocuments, numbers: list[int], until: int) -> Iterator[pa.RecordBatch]:
    """Yield dataset, name, document, id, times, first and last of every document that was used, before a step."""
    found = {number: documents.corpus(number) for number in numbers}
    if documents.missing and any(corpus.store is None for corpus in found.values()):
        raise ConfigError(next(iter(documents.missing.values())))
    packed = {number: corpus.packing for number, corpus in found.items() if corpus.packing is not None}
    views.register("packed", pa.table({"dataset": pa.array(list(packed), pa.int32())}))
    views.register("pieces", pa.RecordBatchReader.from_batches(_PIECES, _pieces(packed)))
    for batch in views.stream(_HELD.format(exposed=_EXPOSED.format(until=until))):
        yield _named(batch, "document", documents)


def _pieces(packed: Mapping[int, PackingIndex]) -> Iterator[pa.RecordBatch]:
    """Yield which documents the rows of packed datasets hold."""
    for number, index in packed.items():
        for first in range(0, len(index), _ROWS_AT_ONCE):
            offsets = index.row_offsets[first : first + _ROWS_AT_ONCE + 1]
            held = pa.array(index.document[int(offsets[0]) : int(offsets[-1])], pa.int64())
            lists = pa.LargeListArray.from_arrays(offsets - offsets[0], held)
            lists.validate(full=True)  # refuses offsets that do not rise
            rows = np.arange(first, first + len(lists))
            yield pa.record_batch(
                [pa.array(np.full(len(rows), number, np.int32)), pa.array(rows), lists], schema=_PIECES
            )


def _named(batch: pa.RecordBatch, key: str, documents: RunDocuments) -> pa.RecordBatch:
    """Return rows with what they are called behind their numbers; packed rows have no name of their own."""
    ids: list[str | None] = []
    for number, item in zip(batch["dataset"].to_pylist(), batch[key].to_pylist(), strict=True):
        is_called = key == "document" or documents.corpus(number).packing is None
        ids.append(documents.name(number, item) if is_called else None)
    return batch.add_column(3, "id", pa.array(ids, pa.string()))
