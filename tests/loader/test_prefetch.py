"""A thread fetches ahead where that hides something, found by measuring; the deliveries are the same."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, strategies as st

from lading import Loader, NumpyLoader
from lading.loader.prefetch import _QUICK_SECONDS, Pace
from lading.loader.request import PREFETCH
from lading.runtime.threads import THREAD_NAME


class Slow:
    """Small samples that take a while, and draw nothing."""

    random_free = True

    def __init__(self, seconds):
        self.seconds, self.threads = seconds, set()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        self.threads.add(threading.current_thread().name)
        time.sleep(self.seconds)
        return index


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize("is_ahead", [True, False])
def test_small_batches_that_take_a_while_are_fetched_while_they_are_used(face, is_ahead):
    """However few bytes they have; not where nobody has anything else to do meanwhile."""
    source, found = Slow(2e-3), []
    for batch in face(source, 2, shuffle=False):
        if is_ahead:
            time.sleep(8e-3)
        found += batch.tolist()

    assert found == list(range(64))
    assert (THREAD_NAME in source.threads) == is_ahead


def test_what_was_learnt_is_known_in_the_next_epoch():
    """Only the first batch is fetched when it is asked for."""
    source = Slow(1e-3)
    loader = Loader(source, 2)
    for _ in loader:
        time.sleep(4e-3)
    source.threads.clear()
    batches = iter(loader)
    next(batches), next(batches)

    assert THREAD_NAME in source.threads


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_a_pace_is_decided_once_and_by_several_batches(seen):
    """One slow batch, such as the first, decides nothing."""
    pace = Pace()
    for number, (fetching, using) in enumerate(seen):
        before = pace.depth
        if before is None:
            pace.note(fetching, using)
        last = seen[max(0, number - 3) : number + 1]
        if before is None and len(last) == 4:
            quickest, soonest = min(f for f, _ in last), min(u for _, u in last)
            expected = 0 if quickest < _QUICK_SECONDS else PREFETCH if soonest > quickest / 2 else None
            assert pace.depth == expected
        else:
            assert pace.depth == before
