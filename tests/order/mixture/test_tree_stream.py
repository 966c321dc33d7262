"""Stages of a stream: what a change of weights carries over."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from lading.order.mixture.tree import balanced


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1).filter(lambda r: any(w for w, _ in r)))
def test_what_the_live_datasets_owe_each_other_adds_up_to_nothing(rows):
    """Whole numbers, shared out to the last one; those that left keep what they are owed."""
    weights, residuals = (np.array(column) for column in zip(*rows, strict=True))

    found = balanced(weights, residuals)

    assert found[weights > 0].sum() == 0
    assert (found[weights == 0] == residuals[weights == 0]).all()
