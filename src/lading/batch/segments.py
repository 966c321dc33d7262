"""Questions about the segments of token rows, and rows whose segments are found by their E tokens.

inputs          E 1 2 3 E 4 5 E     each E in the inputs starts a segment; the first one is segment 1
segmentation    1 1 1 1 2 2 2 3     (0 where it was 0 before: padding)
position        0 1 2 3 0 1 2 0
cu_seqlens      0       4     7 8   starts in the flattened rows, then the end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lading.batch.arrays import as_int32, counting, framework, host, namespace, running_maximum
from lading.batch.llm import LLMBatch


def segment_by_eod(batch: LLMBatch, eod_token_id: int = 0) -> LLMBatch:
    """Return rows that were not packed with a segment for each document in them.

    Segments start at each end-of-document token in the inputs, the first segment is 1, positions restart. Where a
    segmentation is 0 (padding) it stays 0, and so does the position.

    >>> rows = LLMBatch.from_inputs([[1, 2, 9, 3, 4]], eod_token_id=9)
    >>> segment_by_eod(rows, eod_token_id=9).inputs_segmentation.tolist()
    [[1, 1, 1, 2, 2]]
    """
    space = namespace(batch.inputs)
    is_start = batch.inputs == eod_token_id
    number = space.cumsum(as_int32(is_start, batch.inputs), axis=-1, dtype=space.int32)
    segment = number + 1 - number[..., :1]
    place = counting(batch.inputs)
    position = place - running_maximum(space.where(is_start, place, space.zeros_like(place)))
    nothing = space.zeros_like(place)
    masks = {"inputs": batch.inputs_segmentation != 0, "targets": batch.targets_segmentation != 0}
    fields = {f"{side}_segmentation": space.where(mask, segment, nothing) for side, mask in masks.items()}
    fields |= {f"{side}_position": space.where(mask, position, nothing) for side, mask in masks.items()}
    return batch.replace(**fields, _document_borders=None)


def cu_seqlens(batch: LLMBatch) -> Any:
    """Return where each segment starts in the flattened rows, and at last their end; int32, as varlen attention asks.

    A run of padding is a segment of its own, so that the numbers fit ``batch.inputs.reshape(-1)``. No segment reaches
    over the end of a row.
    """
    borders = np.array(host(batch.get_document_borders()), dtype=bool)
    borders[..., :1] = True
    starts = np.append(np.flatnonzero(borders.reshape(-1)), borders.size).astype(np.int32)
    return starts if framework(batch.inputs) == "numpy" else as_int32(starts, batch.inputs)


def max_seqlen(batch: LLMBatch) -> int:
    """Return the length of the longest segment in ``cu_seqlens``."""
    lengths = np.diff(host(cu_seqlens(batch)))
    return int(lengths.max()) if lengths.size else 0
