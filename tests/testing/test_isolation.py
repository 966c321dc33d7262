"""assert_isolated finds leaks, and says so when it could not find one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tests.batch.tiny_transformer import LENGTH, VOCAB, logits, weights

from lading.batch import pack, to_jax, to_torch
from lading.testing import assert_isolated

pytestmark = pytest.mark.jax

SPACES = {"jax": (jnp, to_jax), "torch": (torch, to_torch)}


def packed():
    """Rows of several documents."""
    random = np.random.default_rng(0)
    return pack([random.integers(1, VOCAB, length) for length in [5, 30, 11, 20, 8, 17]], LENGTH)


@pytest.mark.parametrize("kind", SPACES)
def test_a_transformer_with_segment_masks_passes_and_one_without_fails(kind):
    """The mask is the whole difference."""
    space, convert = SPACES[kind]
    batch = convert(packed())
    known = {name: convert(value) for name, value in weights().items()}

    assert_isolated(lambda b: logits(space, known, b), batch)
    with pytest.raises(
        AssertionError, match=r"documents leak: changing the tokens of segment 1 in row 0 changed .*segment"
    ):
        assert_isolated(lambda b: logits(space, known, b, masked=False), batch)


def recurrent(batch, *, reset):
    """A running sum of tokens, which starts again at borders or not."""
    borders, out = batch.get_document_borders(), np.zeros(batch.inputs.shape)
    for row in range(len(batch)):
        state = 0.0
        for place, token in enumerate(batch.inputs[row]):
            state = (0.0 if reset and borders[row, place] else 0.9 * state) + token
            out[row, place] = state
    return out


def test_a_recurrent_model_has_to_reset_at_borders():
    """get_document_borders is enough for it."""
    assert_isolated(lambda b: recurrent(b, reset=True), packed())
    with pytest.raises(AssertionError, match="documents leak"):
        assert_isolated(lambda b: recurrent(b, reset=False), packed())


def test_a_leak_backwards_is_found():
    """A model that looks ahead by one position sees the next document."""

    def ahead(batch):
        return np.concatenate([batch.inputs[:, 1:] + batch.inputs[:, :-1], batch.inputs[:, -1:]], axis=1)

    with pytest.raises(
        AssertionError, match="changing the tokens of segment 2 in row 0 changed the output for segment 1"
    ):
        assert_isolated(ahead, packed())


def test_what_proves_nothing_is_refused():
    """One document a row, a random model, a model that reads nothing, a mean loss, one token."""
    random = np.random.default_rng(0)
    for model, batch, message in [
        (lambda b: b.inputs, pack([[1, 2]], 8), "no row holds two documents"),
        (lambda b: b.inputs + random.normal(size=b.inputs.shape), packed(), "differently each time"),
        (lambda b: np.zeros(b.inputs.shape), packed(), "does not react to other tokens at all"),
        (lambda b: np.float64(b.inputs.mean()), packed(), r"expected \[B, T, \.\.\.\]"),
        (lambda b: b.inputs, pack([[0], [0]], 4), "the batch holds one token only"),
    ]:
        with pytest.raises(AssertionError, match=message):
            assert_isolated(model, batch)
