"""From columns to an LLM batch: what a loader yields becomes what the model takes.

{"inputs": ..., "targets": ..., ..., "idx": ...}  ─▶  LLMIndexedBatch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lading.batch.llm import TOKEN_FIELDS, LLMBatch, LLMIndexedBatch
from lading.errors import SourceError
from lading.identity.bill import IS_PADDING
from lading.runtime.arrays import namespace

INDEX_FIELDS = ("document_idx", "sequence_idx")
_UNLEARNT = ("inputs_segmentation", "targets_segmentation", "document_idx")


def llm_batch(columns: Mapping[str, Any]) -> LLMBatch:
    """Return the columns of a batch as an ``LLMIndexedBatch`` (or ``LLMBatch`` where the documents are not named).

    Rows that ``is_padding`` marks become padding: segment 0 and document 0, so that nothing is learnt from them. Other
    columns (``idx``, ``dataset_idx``) are left out: they are in the bill.
    """
    missing = [name for name in TOKEN_FIELDS if name not in columns]
    if missing:
        raise SourceError(
            f"a batch without {', '.join(missing)} is no LLM batch; it has {', '.join(map(str, columns))}. "
            "Read rows through lading.PackedRows, or make the batch with LLMBatch.from_inputs."
        )
    named = all(name in columns for name in INDEX_FIELDS)
    fields = {name: columns[name] for name in (*TOKEN_FIELDS, *(INDEX_FIELDS if named else ()))}
    is_padding = columns.get(IS_PADDING)
    if is_padding is not None and bool(is_padding.any()):
        fields |= {name: _without(fields[name], is_padding) for name in _UNLEARNT if name in fields}
    return LLMIndexedBatch(**fields) if named else LLMBatch(**fields)


llm_batch.random_free = True  # type: ignore[attr-defined]  # a loader may run it ahead in a thread


def collate_llm(rows: Sequence[Mapping[str, Any]]) -> LLMBatch:
    """Collate rows (dicts of one-dimensional arrays) into an LLM batch; a ``collate_fn`` for any DataLoader."""
    if not rows:
        raise SourceError("there are no rows to collate. Check drop_last and the length of the dataset.")
    return llm_batch({name: namespace(rows[0][name]).stack([row[name] for row in rows]) for name in rows[0]})


def _without(column: Any, rows: Any) -> Any:
    """Return a column with 0 in some rows; the column itself may be a reused buffer."""
    space = namespace(column)
    mask = rows.reshape(-1, *[1] * (column.ndim - 1))
    return space.where(mask, space.zeros_like(column), column)
