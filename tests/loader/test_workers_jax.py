"""Worker processes where JAX is loaded: a process with its threads must not fork."""

from __future__ import annotations

import os

import jax.numpy as jnp
import numpy as np

from lading.loader.workers import ProcessSettings, Workers
from lading.loader.workers.slots import MAX_HELD


def parent_and_array(k):
    """Return the parent of the worker, and an array."""
    return os.getppid(), np.full((100, 8), k, np.float32)


def test_workers_are_forked_from_a_server_without_jax():
    """Not from this process: a fork would be a RuntimeWarning, which is an error in these tests."""
    found = [result for _, result in Workers(ProcessSettings(parent_and_array, 2)).run(iter(range(4)))]

    assert all(parent != os.getpid() for parent, _ in found)
    assert [int(array[0, 0]) for _, array in found] == [0, 1, 2, 3]


def test_device_arrays_made_of_results_never_change():
    """On the CPU they may lie in the very memory of the slot: they keep it."""
    count = 4 * MAX_HELD
    run = Workers(ProcessSettings(parent_and_array, 1)).run(iter(range(count)))

    kept = [jnp.asarray(array) for _, (_, array) in run]

    assert [float(array.sum()) for array in kept] == [800.0 * k for k in range(count)]
