"""Kill soak: 200 kills and more, in random trees of resumes and loops that break off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.ledger.test_kill import check, survive


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.timeout(7200)
def test_history_survives_a_soak_of_kills(tmp_path: Path):
    """As long as ``LADING_CAMPAIGN_SECONDS`` says, from ``LADING_CAMPAIGN_SEED`` on; runs of 12 attempts each."""
    seed, seconds = (int(os.environ.get(f"LADING_CAMPAIGN_{name}", "60")) for name in ("SEED", "SECONDS"))
    kills, number, left = 0, 0, float(seconds)
    while left > 0:
        seen = survive(tmp_path / str(number), 12, seed=1000 * seed + number, seconds=left)
        kills += check(seen)
        number, left = number + 1, left - sum(life["seconds"] for life in seen)

    print(f"{kills} kills in {number} runs")
