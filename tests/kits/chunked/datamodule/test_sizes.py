"""The sizes rule, row by row of its table."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lading.errors import ConfigError
from lading.kits.chunked.datamodule.sizes import chunk_sizes, num_batches

sizes = st.none() | st.integers(1, 5000)
limits = st.none() | st.integers(0, 5000) | st.floats(0, 1)


@pytest.mark.parametrize(
    ("given_sizes", "enabled", "train", "val"),
    [
        ((None, None), False, None, None),
        ((2000, None), True, 2000, 7),
        ((None, 200), True, 50, 200),
        ((2000, 200), True, 2000, 200),
    ],
)
def test_table_of_sizes(given_sizes, enabled, train, val):
    """Either size switches chunking on for both; the missing one is the whole partition."""
    rule = chunk_sizes(*given_sizes, train_batches=50, val_batches=7)

    assert (rule.enabled, rule.train, rule.val) == (enabled, train, val)


@given(sizes, sizes, limits, limits)
def test_limits_never_switch_chunking_on_and_never_change_sizes(train, val, limit_train, limit_val):
    """With sizes the limits are as if not given; without, they stay what they are."""
    rule = chunk_sizes(train, val, limit_train_batches=limit_train, limit_val_batches=limit_val)
    without = chunk_sizes(train, val)

    assert rule.enabled == (train is not None or val is not None)
    assert (rule.train, rule.val) == (without.train, without.val)
    expected = (1.0, 1.0) if rule.enabled else (limit_train, limit_val)
    assert (rule.limit_train_batches, rule.limit_val_batches) == expected
    assert rule.enabled or not rule.ignored


def test_the_warning_names_the_ignored_numbers():
    """One line with each limit that does not hold; Lightning's default of 1.0 is no limit."""
    rule = chunk_sizes(2000, None, limit_train_batches=100, limit_val_batches=0.25)

    assert rule.warning is not None
    assert rule.warning.startswith("limit_train_batches=100, limit_val_batches=0.25 ignored: chunk sizes are given")
    assert "train 2000 batches, val whole partition" in rule.warning
    assert chunk_sizes(2000, limit_train_batches=1.0).warning is None
    assert chunk_sizes(limit_train_batches=100).warning is None


def test_a_missing_size_waits_for_its_partition():
    """Before setup the size of a partition is not known; nothing is invented."""
    rule = chunk_sizes(val_chunk_size=20)

    assert rule.enabled and rule.train is None and rule.val == 20


@pytest.mark.parametrize("size", [0, -5, 2.5, "2000", True])
def test_impossible_sizes_are_refused(size):
    """Sizes are integers of batches."""
    with pytest.raises(ConfigError, match=r"val_chunk_size=.*expected an integer of batches from 1 up"):
        chunk_sizes(val_chunk_size=size)


def test_batches_of_a_partition():
    """The short last batch counts unless it is dropped."""
    assert (num_batches(9, 4), num_batches(8, 4), num_batches(9, 4, drop_last=True)) == (3, 2, 2)
