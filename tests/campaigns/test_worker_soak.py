"""Soak of the workers: memory stays flat and nothing is left behind, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.running import SECONDS, SEED
from tests.campaigns.worker_soak import faults, soak


@pytest.mark.launch
def test_workers_leave_nothing_in_a_short_soak(tmp_path: Path):
    """Some seconds of it; memory is still warming up."""
    found = soak(tmp_path, 4.0, SEED)

    assert found["batches"] > 100 and found["killed parents"]
    assert not faults(found, growth=200_000_000)


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.timeout(7200)
def test_workers_keep_their_memory_in_a_long_soak(tmp_path: Path):
    """As long as ``LADING_CAMPAIGN_SECONDS`` says: flat within 50 MB after the first quarter."""
    found = soak(tmp_path, SECONDS, SEED)

    print(found)
    assert not faults(found)
