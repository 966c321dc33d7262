"""Ranks agree, or all raise the same sentence; no rank is left waiting."""

from __future__ import annotations

import threading
import time

import pytest
import torch.distributed as dist

from lading.errors import WorldError
from lading.identity import World
from lading.identity.world import TorchStore, Turn, agree


def together(store, values, *, what="the plan", timeout=20.0):
    """Let one thread for each value take a turn as a rank; return results and errors by rank."""
    found: list[object] = [None] * len(values)

    def rank(number):
        try:
            turn = Turn(TorchStore(store), World(number, len(values)), what, timeout)
            found[number] = turn.take(values[number], way_out="Same seed everywhere.")
        except WorldError as error:
            found[number] = str(error)

    threads = [threading.Thread(target=rank, args=(r,)) for r, value in enumerate(values) if value is not None]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_equal_ranks_get_the_number_of_their_turn():
    """Turns count from 1, each kind for itself."""
    store = dist.HashStore()

    plans = [together(store, [{"seed": 1}] * 3) for _ in range(3)]
    others = together(store, [{"seed": 1}] * 3, what="a reweighting")

    assert plans == [[1] * 3, [2] * 3, [3] * 3] and others == [1] * 3


def test_different_ranks_all_raise_the_same_sentence():
    """Rank 0, which differs from no one, raises it, too."""
    found = together(dist.HashStore(), [{"seed": 1, "size": 8}, {"seed": 2, "size": 8}, {"seed": 1, "size": 4}])

    sentence = (
        "ranks disagree on the plan: rank 1 differs from rank 0 (seed 1 -> 2); rank 2 differs from rank 0 "
        "(size 8 -> 4). Same seed everywhere."
    )
    assert found == [sentence] * 3


def test_many_different_ranks_make_a_short_sentence():
    """Four are listed, the others counted."""
    found = together(dist.HashStore(), [{"seed": rank} for rank in range(12)])

    assert len(set(found)) == 1 and found[0].count("differs") == 4 and "; and 7 more." in found[0]


def test_a_rank_that_does_not_come_is_named():
    """After the timeout, by those who came; whoever it is."""
    begun = time.monotonic()
    late = together(dist.HashStore(), [{"seed": 1}, None, {"seed": 1}], timeout=2.0)
    first = together(dist.HashStore(), [None, {"seed": 1}, {"seed": 1}], timeout=2.0)

    assert late[0] == late[2] and late[0].startswith("rank 1 did not come to agree on the plan within 2 s")
    assert first[1] == first[2] and first[1].startswith("rank 0 did not come")
    assert time.monotonic() - begun < 120


def test_the_store_does_not_grow_with_the_turns():
    """What a turn wrote is removed two turns later: a policy may agree a hundred thousand times."""
    store = dist.HashStore()
    sizes = []
    for _ in range(8):
        together(store, [{"seed": 1}] * 2)
        sizes.append(store.num_keys())

    assert sizes[-1] == sizes[2]


@pytest.mark.parametrize("world", [World(), World(1, 2)])
def test_without_a_process_group_nothing_is_compared(world):
    """One rank, or ranks that were given as arguments."""
    assert agree(world, "the plan", {"seed": 1}) == 0
