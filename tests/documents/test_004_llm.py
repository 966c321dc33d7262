"""Document 004, LLM batches: every name of its page, its example, and its rules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.documents.contract import check_arguments, promised

from lading import Batch, LLMBatch, LLMIndexedBatch, dataclass_kwonly, pack, rolling_windows
from lading.batch import segment_by_eod

pytestmark = pytest.mark.jax

E = 9
ADDED = "*, inputs_position, inputs_segmentation, targets_position, targets_segmentation, _document_borders=None"
NAMES = {
    "Batch": ("batch", "inputs, targets"),
    "LLMBatch": ("batch", f"inputs, targets, {ADDED}"),
    "LLMIndexedBatch": ("batch", f"inputs, targets, {ADDED}, document_idx, sequence_idx"),
    "dataclass_kwonly": ("batch", ""),
    "pack": (
        "batch",
        "documents, row_length, eod_token_id=0, algorithm='first_fit', overflow='error', reset_positions=True",
    ),
    "rolling_windows": ("batch", "documents, row_length"),
    "cu_seqlens": ("batch", "batch"),
    "max_seqlen": ("batch", "batch"),
}


def test_the_example_of_the_page():
    """Sequences [1, 2, 3], [4, 5], [6, 7] in rows of 8."""
    row = pack([[1, 2, 3], [4, 5], [6, 7]], row_length=8, eod_token_id=E)[0]

    assert row.targets.tolist() == [1, 2, 3, E, 4, 5, E, 0]
    assert row.inputs.tolist() == [E, 1, 2, 3, E, 4, 5, E]
    assert row.targets_segmentation.tolist() == row.inputs_segmentation.tolist() == [1, 1, 1, 1, 2, 2, 2, 0]
    assert row.targets_position.tolist() == row.inputs_position.tolist() == [0, 1, 2, 3, 0, 1, 2, 0]
    assert row.get_document_borders().astype(int).tolist() == [1, 0, 0, 0, 1, 0, 0, 1]


def test_document_borders():
    """[1, 1, 2, 2, 2, 3] gives 1 0 1 0 0 1; an explicit buffer overrides; a slice keeps the borders of the whole."""
    batch = LLMBatch.from_inputs(np.ones((1, 6), np.int32))
    batch = batch.replace(inputs_segmentation=np.array([[1, 1, 2, 2, 2, 3]], np.int32))

    assert batch.get_document_borders().astype(int).tolist() == [[1, 0, 1, 0, 0, 1]]
    assert batch[:, 1:4].get_document_borders().astype(int).tolist() == [[0, 1, 0]]
    assert batch.replace(_document_borders=np.zeros((1, 6), bool)).get_document_borders().sum() == 0


@pytest.mark.parametrize("space", [np, jnp])
def test_from_inputs(space):
    """With and without targets, plain and indexed; positions 0..T-1, one segment, int32."""
    inputs = space.asarray([[5, 6, 7], [8, 9, 10]], dtype=np.int32)
    shifted, given = LLMBatch.from_inputs(inputs), LLMBatch.from_inputs(inputs, targets=inputs + 1)
    indexed = LLMIndexedBatch.from_inputs(
        inputs, document_idx=space.asarray([1, 2]), sequence_idx=space.asarray([0, 0])
    )

    assert shifted.inputs.tolist() == [[0, 5, 6], [0, 8, 9]] and shifted.targets.tolist() == inputs.tolist()
    assert given.inputs.tolist() == inputs.tolist() and given.targets.tolist() == (inputs + 1).tolist()
    assert (
        shifted.inputs_position.tolist() == [[0, 1, 2]] * 2 and shifted.targets_segmentation.tolist() == [[1] * 3] * 2
    )
    assert indexed.document_idx.dtype == np.int32 and indexed[:, 1:].document_idx.tolist() == [1, 2]
    assert len(indexed) == 2 and len(list(indexed)) == 2


def test_shapes_and_samples_for_compiling():
    """get_dtype_struct and get_sample of both classes, usable under jit."""
    for cls, leaves in ((LLMBatch, 6), (LLMIndexedBatch, 8)):
        struct, sample = cls.get_dtype_struct(2, 4), cls.get_sample(2, 4)
        assert isinstance(struct, cls) and isinstance(sample, cls)
        assert isinstance(struct.inputs, jax.ShapeDtypeStruct) and struct.inputs.shape == (2, 4)
        assert len(jax.tree_util.tree_leaves(sample)) == leaves
        assert jax.jit(lambda batch: batch.inputs.sum() + batch.get_document_borders().sum())(sample) == 2
        assert jax.eval_shape(lambda batch: batch.targets, struct).dtype == jnp.int32


def test_batches_are_frozen_pytrees_of_keyword_fields():
    """Batch takes inputs and targets; dataclass_kwonly makes such classes."""
    batch = Batch(np.zeros((4, 2)), np.ones((4, 2)))
    with pytest.raises(AttributeError):
        batch.inputs = None  # type: ignore[misc]

    @dataclass_kwonly
    class Pair:
        left: object
        right: object = None

    with pytest.raises(TypeError):
        Pair(1)  # type: ignore[misc]
    assert Pair(left=1).replace(right=2).right == 2
    assert jax.tree_util.tree_map(lambda x: x + 1, batch).targets.tolist() == [[2.0, 2.0]] * 4


def test_rows_that_were_not_packed_and_long_documents():
    """Segments start at each end-of-document token in the inputs; every target of a long document counts once."""
    rows = LLMBatch.from_inputs([[1, 2, E, 3, 4]], eod_token_id=E)
    windows = rolling_windows([np.arange(1, 12)], 4, context=2, eod_token_id=E)

    assert segment_by_eod(rows, eod_token_id=E).inputs_segmentation.tolist() == [[1, 1, 1, 2, 2]]
    assert segment_by_eod(rows, eod_token_id=E).inputs_position.tolist() == [[0, 1, 2, 0, 1]]
    assert sorted(windows.targets[windows.targets_segmentation == 1].tolist()) == list(range(1, 12))


@pytest.mark.parametrize("name", NAMES)
def test_names_and_arguments_are_those_of_the_contract(name):
    """From ``lading`` and from the stage, arguments by place, with the defaults that are promised."""
    stage, written = NAMES[name]

    check_arguments(promised(name, stage), written)


def test_makers_of_batches_take_what_the_page_says():
    """from_inputs of both classes; get_dtype_struct is static, get_sample knows its class."""
    check_arguments(LLMBatch.from_inputs, "inputs, targets=None")
    check_arguments(LLMIndexedBatch.from_inputs, "inputs, document_idx, sequence_idx, targets=None")
    for cls in (LLMBatch, LLMIndexedBatch):
        check_arguments(cls.get_dtype_struct, "batch_size, max_length")
        check_arguments(cls.get_sample, "batch_size, max_length")
        assert isinstance(cls.__dict__["get_dtype_struct"], staticmethod)
        assert cls.get_sample.__self__ is cls
