"""What is behind ``np.random`` is exchanged and put back, with the normal that waits."""

# ruff: noqa: NPY002
from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lading.runtime import numpy_exchange

KINDS = [np.random.MT19937, np.random.PCG64, np.random.Philox, np.random.SFC64]
DRAWS = {"rand": np.random.rand, "normal": np.random.normal, "word": lambda: np.random.bytes(4)}


@contextlib.contextmanager
def behind(bits):
    """Put a generator behind np.random, and back again what was there."""
    own, state = np.random.get_bit_generator(), np.random.get_state(legacy=False)
    np.random.set_bit_generator(bits)
    yield
    np.random.set_bit_generator(own)
    numpy_exchange.set_state(state)


@pytest.fixture(autouse=True)
def kept():
    """Leave the generator of the test process as it was."""
    with behind(np.random.MT19937(0)):
        yield


@pytest.fixture(params=["read", "asked"])
def way(request, monkeypatch):
    """Both ways to know that no normal waits: the state read in memory, and NumPy asked."""
    if request.param == "asked":
        monkeypatch.setattr(numpy_exchange, "_is_readable", lambda: False)
    return request.param


def batch():
    """Exchange, draw, put back."""
    outside = numpy_exchange.begin()
    np.random.seed(3)
    found = [np.random.normal() for _ in range(3)]
    numpy_exchange.end(outside)
    return found


def test_the_state_is_readable_here():
    """Where it were not, everything works, 30 microseconds slower."""
    assert numpy_exchange._is_readable()


@pytest.mark.parametrize("kind", KINDS)
@given(events=st.lists(st.sampled_from(["batch", *DRAWS]), max_size=40), seed=st.integers(0, 9))
def test_training_never_notices(way, kind, events, seed):
    """Whatever kind of generator it has, and whether a normal waits or not: numbers, state and object are its own."""
    with behind(kind(seed)):
        expected = [DRAWS[name]() for name in events if name != "batch"]

    with behind(bits := kind(seed)):
        found = [batch() if name == "batch" else DRAWS[name]() for name in events]
        assert np.random.get_bit_generator() is bits

    assert [x for x, name in zip(found, events, strict=True) if name != "batch"] == expected
    assert len({tuple(x) for x, name in zip(found, events, strict=True) if name == "batch"}) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_numpys_own_state_is_the_same_to_the_last_byte(way, kind):
    """With a waiting normal and without."""
    with behind(kind(2)):
        for _ in range(4):
            before = np.random.get_state(legacy=False)
            batch()
            np.testing.assert_equal(np.random.get_state(legacy=False), before)
            np.random.normal()


def test_a_normal_that_waits_because_a_state_was_restored_is_kept():
    """The words are those of the last exchange: only whoever set the state knows better."""
    np.random.seed(1)
    np.random.normal()
    saved = np.random.get_state(legacy=False)
    expected = np.random.normal()
    batch()
    numpy_exchange.set_state(saved)
    batch()

    assert np.random.normal() == expected


def test_a_state_that_lies_elsewhere_is_not_read(monkeypatch):
    """A later NumPy may have another layout: the trial says so."""
    monkeypatch.setattr(numpy_exchange, "_STATE_BYTES", 2496)

    assert not numpy_exchange._is_readable.__wrapped__()


def test_batches_inside_each_other():
    """Each has a generator of its own."""
    outside = numpy_exchange.begin()
    np.random.seed(8)
    np.random.normal()
    expected = np.random.get_state(legacy=False)
    batch()
    np.testing.assert_equal(np.random.get_state(legacy=False), expected)
    numpy_exchange.end(outside)


def test_a_worker_draws_from_a_twister():
    """As every other process does, whatever the user put behind np.random: numbers belong to batches."""
    with behind(np.random.PCG64(1)):
        numpy_exchange.keep_a_twister()

        assert type(np.random.get_bit_generator()) is np.random.MT19937
