"""Batches of token rows: which document each token belongs to, and where in it.

Three documents, rows of 8, packed by first fit; E ends a document, 0 is padding
(the third document goes to the next row):

    targets          1 2 3 E 4 5 E 0
    inputs           E 1 2 3 E 4 5 E      targets moved right by one: what the model has seen
    segmentation     1 1 1 1 2 2 2 0      inputs and targets alike
    position         0 1 2 3 0 1 2 0
    borders          1 0 0 0 1 0 0 1      where a recurrent model forgets

Rows that were not packed find their segments by their E tokens:

inputs          E 1 2 3 E 4 5 E     each E in the inputs starts a segment; the first one is segment 1
segmentation    1 1 1 1 2 2 2 3     (0 where it was 0 before: padding)
position        0 1 2 3 0 1 2 0
cu_seqlens      0       4     7 8   starts in the flattened rows, then the end

What a loader yields, {"inputs": ..., "targets": ..., ..., "idx": ...}, becomes what the model takes by ``llm_batch``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from lading.batch.batch import Batch, _expanded
from lading.batch.pytree import dataclass_kwonly
from lading.errors import PackingError, SourceError
from lading.identity.bill import IS_PADDING
from lading.runtime.arrays import as_int32, counting, framework, host, namespace, running_maximum, shifted_right

TOKEN_FIELDS = (
    *("inputs", "targets"),
    *("inputs_position", "inputs_segmentation", "targets_position", "targets_segmentation"),
)


@dataclass_kwonly
class LLMBatch(Batch):
    """Token rows, [B, T] int32, with positions and segmentations.

    Args:
        inputs: The tokens the model reads.
        targets: The tokens it has to predict.
        inputs_position: Position of each input token in its document.
        inputs_segmentation: Segment of each input token in its row, from 1; 0 is padding.
        targets_position: Position of each target token.
        targets_segmentation: Segment of each target token; 0 where nothing is to be learnt.
        _document_borders: Overrides the borders that the segmentation implies, as slices need it.
    """

    inputs_position: Any
    inputs_segmentation: Any
    targets_position: Any
    targets_segmentation: Any
    _document_borders: Any = None

    def get_document_borders(self) -> Any:
        """Return True where a document starts: at position 0 and wherever the input segmentation changes.

        The start of padding counts as a border.

        >>> LLMBatch.from_inputs([[5, 6, 7]]).get_document_borders().tolist()
        [[True, False, False]]
        """
        if self._document_borders is not None:
            return self._document_borders
        segments = self.inputs_segmentation
        space = namespace(segments)
        first = space.ones_like(segments[..., :1], dtype=space.bool if framework(segments) == "torch" else bool)
        return space.concatenate([first, segments[..., 1:] != segments[..., :-1]], axis=-1)

    def __getitem__(self, key: Any) -> Self:
        # A slice that starts inside a document must not see a border there, so it keeps the borders of the whole.
        # Rows alone have the borders they had, and stay the same pytree.
        ndim = self.inputs_segmentation.ndim
        cuts_positions = len([part for part in _expanded(key, ndim) if part is not None]) >= ndim
        whole = self.replace(_document_borders=self.get_document_borders()) if cuts_positions else self
        return Batch.__getitem__(whole, key)

    def _compared(self) -> list[tuple[str, Any]]:
        return list({**dict(self._items()), "_document_borders": self.get_document_borders()}.items())

    @staticmethod
    def from_inputs(inputs: Any, targets: Any = None, *, eod_token_id: int = 0) -> LLMBatch:
        """Make a batch of rows that are one document each.

        Args:
            inputs: Token rows, [B, T].
            targets: Target rows. Without them the inputs are the targets, and the inputs are moved right by one.
            eod_token_id: The token in front of the moved inputs.

        >>> batch = LLMBatch.from_inputs([[5, 6, 7]])
        >>> batch.inputs.tolist(), batch.targets.tolist()
        ([[0, 5, 6]], [[5, 6, 7]])
        """
        return LLMBatch(**_rows(inputs, targets, eod_token_id))

    @staticmethod
    def get_dtype_struct(batch_size: int, max_length: int) -> LLMBatch:
        """Return the batch with a ``jax.ShapeDtypeStruct`` in each field."""
        from lading.batch.jax import structs  # needs JAX, which a batch does not

        return LLMBatch(**structs(TOKEN_FIELDS, batch_size, max_length))

    @classmethod
    def get_sample(cls, batch_size: int, max_length: int) -> Self:
        """Return a batch of zeros (JAX arrays) in the shapes of ``get_dtype_struct``, for compiling."""
        from lading.batch.jax import zeros  # needs JAX, which a batch does not

        shapes = cls.get_dtype_struct(batch_size, max_length)._items()
        return cls(**{name: zeros(shape) for name, shape in shapes if shape is not None})


@dataclass_kwonly
class LLMIndexedBatch(LLMBatch):
    """Token rows that say whose tokens they hold.

    Args:
        document_idx: Number of the document, from 1; 0 is padding. [B] int32, or [B, T], a number per token.
        sequence_idx: Number of the piece inside its document, from 0; of the same shape.
    """

    document_idx: Any
    sequence_idx: Any

    @staticmethod
    def from_inputs(  # type: ignore[override]
        inputs: Any, document_idx: Any, sequence_idx: Any, targets: Any = None, *, eod_token_id: int = 0
    ) -> LLMIndexedBatch:
        """Make a batch of rows that are one piece of a document each; see ``LLMBatch.from_inputs``."""
        rows = _rows(inputs, targets, eod_token_id)
        names = {"document_idx": document_idx, "sequence_idx": sequence_idx}
        columns = {name: as_int32(value, rows["inputs"], name) for name, value in names.items()}
        return LLMIndexedBatch(**rows, **columns)

    @staticmethod
    def get_dtype_struct(batch_size: int, max_length: int) -> LLMIndexedBatch:
        """Return the batch with a ``jax.ShapeDtypeStruct`` in each field."""
        from lading.batch.jax import structs  # needs JAX, which a batch does not

        rows = structs(("document_idx", "sequence_idx"), batch_size)
        return LLMIndexedBatch(**structs(TOKEN_FIELDS, batch_size, max_length), **rows)


def _rows(inputs: Any, targets: Any, eod_token_id: int) -> dict[str, Any]:
    inputs = as_int32(inputs, name="inputs")
    if targets is None:
        inputs, targets = shifted_right(inputs, eod_token_id), inputs
    else:
        targets = as_int32(targets, inputs, "targets")
    position, segmentation = counting(inputs), namespace(inputs).ones_like(inputs)
    return dict(zip(TOKEN_FIELDS, (inputs, targets, position, segmentation, position, segmentation), strict=True))


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


def filled_up(batch: LLMIndexedBatch, multiple: int | None) -> LLMIndexedBatch:
    """Return a NumPy batch with padding rows (document 0, segments 0) up to a multiple of so many rows."""
    if multiple is None:
        return batch
    if multiple < 1:
        raise PackingError(f"batch_size={multiple}: expected a number of rows from 1 up, or nothing.")
    missing = -len(batch) % multiple
    return batch.map(lambda array: np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)]))


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
