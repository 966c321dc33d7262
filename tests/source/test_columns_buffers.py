"""Buffers are filled again only when no one holds them."""

from __future__ import annotations

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from lading.runtime.arrays import aligned
from lading.source.columns import Buffers

pytestmark = pytest.mark.jax


def make():
    """A set of two columns."""
    return {"a": np.zeros((4, 8), np.int32), "b": np.zeros(4, np.int32)}


def make_aligned():
    """The same, as packed rows make them."""
    return {"a": aligned((4, 8), np.int32), "b": aligned((4,), np.int32)}


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 5), np.int32), ((7,), np.uint8), ((0, 4), np.float64), ((2, 1), bool)]
)
def test_what_is_aligned_begins_where_jax_reads_it(shape, dtype):
    """JAX takes it without copying it; it is written to like any other array."""
    array = aligned(shape, dtype)
    array[...] = 1

    assert array.shape == shape and array.dtype == dtype and array.flags.c_contiguous
    assert array.ctypes.data % 64 == 0 and (array == 1).all()


def test_a_set_that_nobody_holds_comes_again():
    """The same memory, without asking for more."""
    shelf = Buffers()
    place = shelf.borrow(4, make)["a"].ctypes.data

    assert shelf.borrow(4, make)["a"].ctypes.data == place


@pytest.mark.parametrize(
    "hold",
    [
        lambda c: c,
        lambda c: c["b"],
        lambda c: c["a"][1:, 2:],
        lambda c: torch.from_numpy(c["a"])[0],
        lambda c: c["a"].data,
    ],
    ids=["columns", "one-column", "view", "tensor", "memoryview"],
)
@pytest.mark.parametrize("make", [make, make_aligned])
def test_whatever_somebody_holds_is_left_alone(hold, make):
    """A dict, one column, a slice of a slice, a tensor: each keeps the whole set off."""
    shelf = Buffers()
    borrowed = shelf.borrow(4, make)
    place = borrowed["a"].ctypes.data
    held = hold(borrowed)
    del borrowed

    other = shelf.borrow(4, make)

    assert other["a"].ctypes.data != place
    del held
    assert shelf.borrow(4, make)["a"].ctypes.data == place


def test_a_jax_array_keeps_what_it_was_given():
    """JAX copies later, or not at all; the array stays held until then."""
    shelf = Buffers()
    seen = []
    for value in range(20):
        columns = shelf.borrow(4, make)
        columns["a"][:] = value
        seen.append(jnp.asarray(columns["a"]))
        del columns

    assert [int(array[0, 0]) for array in seen] == list(range(20))


def test_the_shelf_is_bounded_and_of_one_shape():
    """Sets beyond the limit are given away; another shape empties the shelf."""
    shelf = Buffers(keep=2)
    held = [shelf.borrow(4, make) for _ in range(5)]

    assert len({columns["a"].ctypes.data for columns in held}) == 5 and len(shelf._shelf) == 2
    shelf.borrow(5, make)
    assert len(shelf._shelf) == 1
    assert len(pickle.loads(pickle.dumps(shelf))._shelf) == 0
