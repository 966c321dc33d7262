"""Batch: frozen, sliced together, the same on every framework."""

from __future__ import annotations

import dataclasses
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lading.batch import Batch, LLMBatch, LLMIndexedBatch, dataclass_kwonly
from lading.errors import SourceError

pytestmark = pytest.mark.jax

KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x)), "jax": jnp.asarray}


@pytest.fixture(params=KINDS)
def make(request):
    """An array maker of each framework."""
    return KINDS[request.param]


def indexed(make, rows=3, length=6):
    """A batch with [B] document numbers, segments 1 1 2 2 2 3 in each row."""
    tokens = make(np.arange(rows * length, dtype=np.int32).reshape(rows, length))
    batch = LLMIndexedBatch.from_inputs(tokens, document_idx=np.arange(1, rows + 1), sequence_idx=[0] * rows)
    segments = make(np.tile(np.array([1, 1, 2, 2, 2, 3], np.int32), (rows, 1)))
    return batch.replace(inputs_segmentation=segments, targets_segmentation=segments)


def test_a_batch_takes_inputs_and_targets_by_place_and_the_rest_by_name(make):
    """The first two fields may be positional, the added ones may not."""
    batch = LLMBatch(
        make([[1]]), make([[2]]), inputs_position=0, inputs_segmentation=0, targets_position=0, targets_segmentation=0
    )

    assert Batch(make([1]), make([2])).targets.tolist() == [2]
    assert batch.targets.tolist() == [[2]]
    with pytest.raises(TypeError):
        LLMBatch(*[make([[1]])] * 6)


def test_a_batch_is_frozen_and_replaced(make):
    """Fields cannot be set; replace makes another batch and leaves the first."""
    batch = Batch(make([1]), make([2]))

    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.inputs = make([3])
    assert batch.replace(inputs=make([3])).inputs.tolist() == [3]
    assert batch.inputs.tolist() == [1]


def test_fields_stand_in_the_documented_order():
    """Pytree leaves come in this order."""
    names = [field.name for field in dataclasses.fields(LLMIndexedBatch)]

    assert names == [
        "inputs",
        "targets",
        "inputs_position",
        "inputs_segmentation",
        "targets_position",
        "targets_segmentation",
        "_document_borders",
        "document_idx",
        "sequence_idx",
    ]


def test_row_keys_slice_every_field(make):
    """A slice, an int, a mask and a list of rows act on all fields."""
    batch = indexed(make)

    assert batch[1:].document_idx.tolist() == [2, 3]
    assert batch[1].inputs.tolist() == batch.inputs[1].tolist()
    assert int(batch[1].document_idx) == 2
    assert batch[make(np.array([True, False, True]))].document_idx.tolist() == [1, 3]
    assert batch[make(np.array([2, 0]))].document_idx.tolist() == [3, 1]


def test_column_keys_leave_one_axis_fields_whole(make):
    """batch[:, a:b] cuts the tokens and keeps document_idx."""
    batch = indexed(make)

    part = batch[1:, 2:5]

    assert tuple(part.targets.shape) == (2, 3)
    assert part.document_idx.tolist() == [2, 3]
    assert batch[:, 2:5].document_idx.tolist() == [1, 2, 3]
    assert batch[..., 2:5].document_idx.tolist() == [1, 2, 3]
    assert tuple(batch[..., 1:, 2:5].inputs.shape) == (2, 3)
    assert batch[..., 1:, 2:5].document_idx.tolist() == [2, 3]
    assert tuple(batch[None, 1:, 2:5].inputs.shape) == (1, 2, 3)


def test_column_keys_cut_document_numbers_per_token(make):
    """With a number per token, the names are cut along with the tokens."""
    batch = indexed(make)
    names = make(np.tile(np.array([1, 1, 2, 2, 2, 3], np.int32), (3, 1)))

    part = batch.replace(document_idx=names, sequence_idx=names)[:, 2:5]

    assert part.document_idx.tolist() == [[2, 2, 2]] * 3


def test_a_mask_of_two_axes_names_the_field_it_cannot_select_from(make):
    """document_idx has one axis."""
    batch = indexed(make)

    with pytest.raises(SourceError, match="a mask of 2 axes cannot select from 'document_idx', which has 1"):
        batch[batch.inputs_segmentation > 1]


def test_length_is_rows_and_iteration_ends(make):
    """Iterating yields the rows."""
    batch = indexed(make)

    rows = list(batch)

    assert len(batch) == len(rows) == 3
    assert [int(row.document_idx) for row in rows] == [1, 2, 3]


def test_equals_compares_class_shape_dtype_and_values(make):
    """Equal values in another framework are equal; == stays identity."""
    batch = indexed(make)

    assert batch.equals(indexed(np.asarray))
    assert indexed(np.asarray).equals(batch)
    assert not batch.equals(batch[:2])
    assert not batch.equals(batch.replace(targets=batch.targets + 1))
    assert not batch.equals(batch.replace(document_idx=np.array([1, 2, 3], np.int64)))
    assert not batch.equals("text") and batch != indexed(make)


def test_equals_looks_at_borders_not_at_how_they_are_kept(make):
    """Borders that are set to what the segments imply make no difference."""
    batch = indexed(make)

    assert batch.equals(batch.replace(_document_borders=batch.get_document_borders()))
    assert not batch.equals(batch.replace(_document_borders=~batch.get_document_borders()))


def test_repr_shows_shapes_instead_of_values(make):
    """A batch of a million tokens prints in one line."""
    assert "inputs=int32[3,6]" in repr(indexed(make))


def test_a_batch_survives_pickling():
    """Worker processes send batches."""
    batch = indexed(np.asarray)

    assert pickle.loads(pickle.dumps(batch)).equals(batch)


def test_torch_batches_move_like_tensors():
    """Lightning and DataLoader call to() and pin_memory()."""
    batch = indexed(KINDS["torch"])

    assert batch.to(torch.int64).inputs.dtype == torch.int64
    assert batch.to("cpu").equals(batch)


def test_classes_of_ones_own():
    """dataclass_kwonly makes frozen, keyword-only classes that slice like the others."""

    @dataclass_kwonly
    class Scored(LLMBatch):
        reward: object
        source: str = dataclasses.field(default="", metadata={"pytree_node": False})

    scored = Scored(**dict(LLMBatch.from_inputs([[1, 2], [3, 4]])._items()), reward=np.array([0.5, 1.0]), source="a")

    assert scored[1:].reward.tolist() == [1.0] and scored[1:].source == "a"
    with pytest.raises(TypeError):
        Scored(1, 2, 3)
