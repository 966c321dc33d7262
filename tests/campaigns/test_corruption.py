"""Corruption of every file of a run: a wrong "holds" or a traceback is found here first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.campaigns.corruption import Campaign, run_campaign

SMALL = [("digest", 1, 1), ("names", 3, 1), ("content", 1, 0)]


@pytest.mark.filterwarnings("ignore")
def test_a_change_of_any_file_is_named_or_changes_no_answer(tmp_path: Path):
    """The small twin of the campaign: the first 70 changes of a seed."""
    campaign = Campaign(tmp_path, SMALL)

    for number in range(70):
        campaign.change(11, number)

    assert not campaign.failures
    assert campaign.figures["named"] > 40


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore")
def test_thousands_of_changes_are_named_or_change_no_answer(tmp_path: Path):
    """As long as ``LADING_CAMPAIGN_SECONDS`` says, from ``LADING_CAMPAIGN_SEED`` on."""
    seed, seconds = (int(os.environ.get(f"LADING_CAMPAIGN_{name}", "60")) for name in ("SEED", "SECONDS"))

    campaign = run_campaign(tmp_path, seed, seconds)

    print(dict(campaign.figures))
    assert not campaign.failures
