"""Rate and time left."""

from __future__ import annotations

from lading.runtime.blocks.progress import BlockProgress


def test_the_rate_is_of_what_was_done_now():
    """Blocks of an earlier build count as done, and make nothing look faster."""
    now = [0.0]
    pace = BlockProgress(4, 400_000_000, clock=lambda: now[0])

    pace.add(100_000_000, was_there=True)
    assert pace.text() == "1 of 4 blocks" and pace.share == 0.25
    now[0] = 50.0
    pace.add(100_000_000)

    assert pace.text() == "2 of 4 blocks, 2.0 MB/s, 1:40 left" and pace.share == 0.5


def test_an_empty_job_is_done():
    """Nothing is divided by nothing."""
    assert BlockProgress(1, 0).share == 1.0
