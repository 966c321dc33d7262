"""Corruption of every file of a run: a wrong "holds" or a traceback is found here first."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns.corruption import Campaign, fifty_changes
from tests.campaigns.running import FIRST, SECONDS, SEED, run_units, told

SMALL = [("digest", 1, 1), ("names", 3, 1), ("content", 1, 0)]


@pytest.mark.filterwarnings("ignore")
def test_a_change_of_any_file_is_named_or_changes_no_answer(tmp_path: Path):
    """The small twin of the campaign: the first 70 changes of a seed."""
    campaign = Campaign(tmp_path, SMALL)

    for number in range(70):
        campaign.change(11, number)
    campaign.check_copies()

    assert not campaign.found.failures
    assert campaign.found.figures["named"] > 40


@pytest.mark.filterwarnings("ignore")
def test_a_change_that_nobody_notices_is_a_failure(tmp_path: Path, monkeypatch):
    """The campaign can fail: what holds with another answer, what was not put back, what ends in a traceback."""
    campaign = Campaign(tmp_path, SMALL[:1])
    run = next(iter(campaign.known))
    campaign.known[run] += " "
    assert campaign._judge(campaign._copy(run), run, ["run.json"], is_quick=True)[0] == "held"

    (campaign._copy(run) / "run.json").write_text("")
    campaign.check_copies()
    assert len(campaign.found.failures) == 1

    monkeypatch.setattr("tests.campaigns.corruption.open_run", lambda path: 1 / 0)
    assert campaign._judge(campaign._copy(run), run, ["run.json"], is_quick=True)[0] == "traceback"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_thousands_of_changes_are_named_or_change_no_answer(tmp_path: Path):
    """As long as ``LADING_CAMPAIGN_SECONDS`` says, from ``LADING_CAMPAIGN_SEED`` on."""
    found, following = run_units(fifty_changes, tmp_path, SEED, SECONDS, FIRST)

    print(told(found, SEED, FIRST, following))
    assert not found.failures
