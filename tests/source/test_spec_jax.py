"""Checking batches of JAX arrays; the check itself imports no framework."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from lading.errors import BatchError
from lading.source.spec import BatchSpec, Field, validate_batch

SPEC = BatchSpec({"x": Field(("B", 2), "float32", high=1)})


def test_jax_arrays_are_checked_as_others_are():
    """Shapes, types, NaN and ranges, with the row at fault."""
    assert validate_batch({"x": jnp.ones((3, 2))}, SPEC)
    with pytest.raises(BatchError, match=r"x must be <= 1: row 2 of the batch"):
        validate_batch({"x": jnp.ones((3, 2)).at[2, 1].set(2.0)}, SPEC)
    with pytest.raises(BatchError, match=r"NaN detected in x: row 0 of the batch"):
        validate_batch({"x": jnp.full((3, 2), jnp.nan)}, SPEC)
    with pytest.raises(BatchError, match=r"x dtype mismatch: int32 != float32"):
        validate_batch({"x": jnp.ones((3, 2), jnp.int32)}, SPEC)
