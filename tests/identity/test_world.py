"""Who holds which slot of a global batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from lading.identity import World, rank_of


@given(st.integers(1, 60), st.integers(1, 23))
def test_the_rank_of_a_slot_is_the_inverse_of_a_share(size, world_size):
    """Also where the world does not divide the batch, and where it is larger than the batch."""
    ranks = rank_of(np.arange(size), size, world_size)

    for rank in range(world_size):
        start, stop = World(rank, world_size).share(size)
        assert np.flatnonzero(ranks == rank).tolist() == list(range(start, stop))
    assert ranks.tolist() == [rank_of(slot, size, world_size) for slot in range(size)]
