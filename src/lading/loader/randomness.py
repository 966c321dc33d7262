"""Random numbers that belong to a batch, not to a process.

Datasets that augment with the global generators (``random``, NumPy, torch)
get them seeded for the batch and put back afterwards: the same numbers for any
number of workers and after every resume, and training's own generators never
notice that data was read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def isolated_rng(key: int) -> Iterator[None]:
    """Seed the global generators with a 64-bit key inside the block; restore them after it."""
    python, numpy, pytorch = random.getstate(), np.random.get_state(), torch.random.get_rng_state()  # noqa: NPY002
    random.seed(key)
    np.random.seed([key & 0xFFFFFFFF, key >> 32])  # noqa: NPY002  # datasets use the global generator
    torch.random.default_generator.manual_seed(key)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.random.set_rng_state(pytorch)
