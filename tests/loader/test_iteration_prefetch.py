"""Large batches are fetched ahead in a thread, by a rule that knows no clock; the deliveries are the same."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest
import torch

from lading import Loader, Mixture, NumpyLoader
from lading.loader.iteration import LARGE_BYTES, size_of
from lading.runtime.processes import THREAD_NAME

BATCH = 4


class Rows:
    """Samples of some bytes that remember which threads read them, batch by batch."""

    random_free = True

    def __init__(self, size):
        self.size, self.readers = size, {}

    def __len__(self):
        return 6 * BATCH

    def __getitem__(self, index):
        self.readers.setdefault(index // BATCH, set()).add(threading.current_thread().name)
        return np.full(self.size, index, np.uint8)

    def batches_ahead(self):
        """Return the numbers of the batches that the thread has read."""
        return [batch for batch, readers in sorted(self.readers.items()) if readers == {THREAD_NAME}]


class MayDraw(Rows):
    """The same, of which nobody says that it draws nothing."""

    random_free = False


LARGE, SMALL = LARGE_BYTES // BATCH, LARGE_BYTES // BATCH - 1


@pytest.mark.parametrize("face", [Loader, NumpyLoader])
@pytest.mark.parametrize(
    ("source", "options", "is_ahead"),
    [
        (Rows(LARGE), {}, True),
        (Rows(SMALL), {}, False),
        (MayDraw(LARGE), {}, False),
        (Rows(SMALL), {"prefetch": 1}, True),
        (Rows(LARGE), {"prefetch": 0}, False),
        (MayDraw(LARGE), {"prefetch": 2}, False),
        (Rows(LARGE), {"mixture": Mixture(lookahead_steps=1)}, False),
        (Rows(LARGE), {"mixture": Mixture(lookahead_steps=2)}, True),
        (Rows(SMALL), {"mixture": Mixture(lookahead_steps=2)}, False),
    ],
    ids=lambda given: f"{type(given).__name__} of {given.size} bytes" if isinstance(given, Rows) else None,
)
def test_the_size_of_the_first_batch_decides_whether_a_thread_fetches_ahead(face, source, options, is_ahead):
    """In every run alike, unless a number is given; never where numbers may be drawn, never beyond the lookahead."""
    loader = face(source, BATCH, shuffle=False, **options)
    for _ in range(2):
        source.readers.clear()
        found = [batch[:, 0].tolist() for batch in loader]

        assert found == np.arange(6 * BATCH).reshape(6, BATCH).tolist()
        assert source.batches_ahead() == (list(range(1, 6)) if is_ahead else [])


def test_the_size_of_a_batch_is_that_of_its_arrays():
    """In whatever containers; texts and numbers are no arrays."""

    @dataclasses.dataclass
    class Pair:
        left: object
        right: object = None

    batch = [Pair(np.zeros(3)), (torch.zeros(2, dtype=torch.bfloat16), ["text", 7]), {"x": {"y": np.zeros((2, 2))}}]

    assert size_of(batch) == 24 + 4 + 32 and size_of(None) == size_of("text") == 0
