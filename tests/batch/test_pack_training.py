"""A small transformer learns from packed rows exactly as from unpacked ones, in JAX and in torch."""

from __future__ import annotations

import numpy as np
import pytest
from tests.batch.tiny_transformer import LENGTH, VOCAB, train_jax, train_torch

from lading.batch import pack, to_jax, to_torch

pytestmark = pytest.mark.jax

DOCUMENTS = [
    np.random.default_rng(n).integers(1, VOCAB, length) for n, length in enumerate([5, 30, 11, 20, 63, 8, 17, 40, 2])
]


def unpacked():
    """A row for each document, as long as a packed one."""
    rows = [pack([document], LENGTH) for document in DOCUMENTS]
    fields = {
        name: np.concatenate([dict(r._items())[name] for r in rows]) for name, v in rows[0]._items() if v is not None
    }
    return rows[0].replace(**fields)


@pytest.mark.parametrize("algorithm", ["first_fit", "best_fit"])
@pytest.mark.parametrize(("convert", "train"), [(to_jax, train_jax), (to_torch, train_torch)], ids=["jax", "torch"])
def test_packed_and_unpacked_losses_are_the_same(algorithm, convert, train):
    """Step by step to 1e-4, while the loss falls."""
    packed = pack(DOCUMENTS, LENGTH, algorithm=algorithm)
    assert len(packed) <= len(DOCUMENTS) // 2

    together, apart = train(convert(packed)), train(convert(unpacked()))

    assert together == pytest.approx(apart, abs=1e-4)
    assert together[-1] < together[0] - 0.1


def test_both_frameworks_learn_the_same():
    """The same rows, the same weights, the same losses."""
    packed = pack(DOCUMENTS, LENGTH)

    assert train_jax(to_jax(packed)) == pytest.approx(train_torch(to_torch(packed)), abs=1e-4)
