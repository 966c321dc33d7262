"""Digests of many steps at once, compiled and plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.identity.hashing import digest, digests_of_steps
from lading.runtime import compiled


@settings(deadline=None)
@given(st.integers(0, 1 << 40), st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(0, 2**32))
def test_digests_of_steps_are_the_digests_of_their_samples(position: int, sizes: list[int], seed: int):
    """Step by step, or all of them in one call."""
    dice, total = np.random.default_rng(seed), sum(sizes)
    datasets, indices = dice.integers(0, 99, total).astype(np.int32), dice.integers(0, 1 << 62, total)
    starts = np.cumsum([0, *sizes[:-1]])

    found = digests_of_steps(position, datasets, indices, starts)

    places = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    assert found.tolist() == [digest(position + p, datasets[p], indices[p]) for p in places]
    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(compiled, "kernels", None)
        assert np.array_equal(digests_of_steps(position, datasets, indices, starts), found)
