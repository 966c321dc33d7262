"""The order without weights, compiled and plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from lading.order.shuffle import Shuffled
from lading.runtime import compiled


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=30).filter(any), st.sampled_from(["full", "none", "window"]))
def test_compiled_and_plain_orders_are_equal_for_any_lengths(lengths: list[int], shuffle: str):
    """Datasets that are empty, too, wherever they stand; and every sample is there once."""
    found = Shuffled(tuple(lengths), 3, shuffle, 8, {}).samples(0, sum(lengths))

    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(compiled, "kernels", None)
        wanted = Shuffled(tuple(lengths), 3, shuffle, 8, {}).samples(0, sum(lengths))
    assert all(np.array_equal(mine, other) for mine, other in zip(found, wanted, strict=True))
    every = [(dataset, index) for dataset, length in enumerate(lengths) for index in range(length)]
    assert sorted(zip(*(column.tolist() for column in found), strict=True)) == every
