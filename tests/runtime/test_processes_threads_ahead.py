"""Working ahead in a thread."""

from __future__ import annotations

import threading
import time

import pytest

from lading.runtime.processes import THREAD_NAME, ahead


def running():
    """Threads of ours that still run."""
    return [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_items_come_in_order_and_the_thread_ends(depth):
    """With and without a thread."""
    assert list(ahead(iter(range(20)), depth)) == list(range(20)) and not running()


def test_only_so_many_items_wait():
    """The thread runs ahead by the depth, and one item in its hand."""
    made = []
    items = ahead((made.append(n) or n for n in range(100)), 2)

    assert next(items) == 0
    time.sleep(0.3)

    assert len(made) <= 4
    items.close()
    assert not running()


def test_an_error_comes_in_its_place():
    """After the items before it."""

    def failing():
        yield 1
        raise ValueError("in the thread")

    items = ahead(failing(), 2)

    assert next(items) == 1
    with pytest.raises(ValueError, match="in the thread"):
        next(items)
    assert not running()
