"""A run with a roll-back, three ranks, a spike and parts, shared by the tests that only ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.runs import record


@pytest.fixture(scope="session")
def rolled_back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Attempt 0: steps 0..99 on 1 rank. Attempt 1: resumed at 60, to 129, on 3 ranks."""
    path = tmp_path_factory.mktemp("runs") / "7"
    mark = record(path, range(100), part_rows={"batches": 40})
    record(path, range(60, 130), world_size=3, loaded={**mark, "step": 60})
    return path
