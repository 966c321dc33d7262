"""The tracker reads JAX arrays, without importing JAX itself."""

from __future__ import annotations

import pytest

from lading.ledger.tracker.tracker import BatchTracker

jnp = pytest.importorskip("jax.numpy")


def test_reads_jax_arrays():
    """JAX arrays are columns like any other."""
    tracker = BatchTracker()

    tracker.update({"idx": jnp.array([4, 2]), "dataset_idx": jnp.array([1, 1])})

    assert tracker.samples_idx_per_dataset == {1: [4, 2]}
