"""Moving batches between NumPy, torch and JAX."""

from __future__ import annotations

from collections import UserDict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lading.batch import LLMIndexedBatch, pack, to_jax, to_numpy, to_torch
from lading.errors import SourceError

pytestmark = pytest.mark.jax

TO = {"numpy": (to_numpy, np.ndarray), "torch": (to_torch, torch.Tensor), "jax": (to_jax, jax.Array)}


def batch():
    """Packed rows on NumPy."""
    return pack([[1, 2, 3], [4, 5]], row_length=8, eod_token_id=9)


@pytest.mark.parametrize("there", TO)
@pytest.mark.parametrize("back", TO)
def test_there_and_back_is_the_same(there, back):
    """Values, dtypes and class stay; the arrays are of the framework asked for."""
    convert, kind = TO[there]

    moved = convert(batch())
    returned = TO[back][0](moved)

    assert isinstance(moved, LLMIndexedBatch) and isinstance(moved.inputs, kind)
    assert isinstance(returned.document_idx, TO[back][1])
    assert returned.equals(batch())


def test_arrays_in_any_mapping_move():
    """Tokenizers return batches that are mappings, but no dicts."""
    moved = to_torch(UserDict(x=np.arange(2), name="kept"))

    assert isinstance(moved["x"], torch.Tensor) and moved["name"] == "kept"


def test_unset_borders_stay_unset_and_set_ones_move():
    """A border is a field like any other."""
    assert to_torch(batch())._document_borders is None
    assert to_torch(batch()[:, 1:])._document_borders.dtype == torch.bool


def test_dicts_tuples_and_what_is_no_array():
    """Structures are kept, other values pass."""

    class Pair(NamedTuple):
        left: object
        right: object

    moved = to_torch({"a": np.arange(2), "b": [Pair(np.ones(1), "text")], "c": None})

    assert isinstance(moved["a"], torch.Tensor) and isinstance(moved["b"][0].left, torch.Tensor)
    assert moved["b"][0].right == "text" and moved["c"] is None


def test_numpy_memory_is_shared_with_torch_unless_it_is_read_only():
    """A mapped file must not be written through a tensor."""
    mine = np.arange(3)
    locked = np.arange(3)
    locked.flags.writeable = False

    to_torch(mine)[0] = 7
    to_torch(locked)[0] = 7

    assert mine.tolist() == [7, 1, 2] and locked.tolist() == [0, 1, 2]


def test_devices():
    """Both conversions can place what they make."""
    assert to_torch(batch(), device="cpu").inputs.device.type == "cpu"
    assert to_jax(batch(), device=jax.devices()[0]).inputs.devices() == {jax.devices()[0]}
    assert to_jax(jnp.ones(2)).shape == (2,)


def test_integers_that_jax_would_cut_are_refused():
    """JAX turns int64 into int32 without a word."""
    with pytest.raises(SourceError, match="an array of int64 holds 4294967296, but JAX keeps only int32"):
        to_jax({"idx": np.array([1 << 32])})

    assert to_jax(np.array([5])).tolist() == [5]
