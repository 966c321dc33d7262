"""Kill soak: 200 kills and more, in random trees of resumes and loops that break off."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.kill_soak import one_tree
from tests.campaigns.running import FIRST, SECONDS, SEED, run_units, told


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.timeout(7200)
def test_history_survives_a_soak_of_kills(tmp_path: Path):
    """As long as ``LADING_CAMPAIGN_SECONDS`` says, from ``LADING_CAMPAIGN_SEED`` on; the small twin is test_kill.py."""
    found, following = run_units(one_tree, tmp_path, SEED, SECONDS, FIRST)

    print(told(found, SEED, FIRST, following))
    assert not found.failures
