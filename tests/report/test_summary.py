"""What ``lading show`` says of each attempt."""

from __future__ import annotations

from pathlib import Path

from tests.report.runs import record

from lading.report import open_run
from lading.report.summary import summarise


def test_kept_and_rolled_back_steps_are_counted_for_each_attempt(tmp_path: Path):
    """Attempt 0 reaches 30, attempt 1 resumes at 20 and reaches 26, attempt 2 resumes at 10 of attempt 0."""
    mark = record(tmp_path, range(30))
    record(tmp_path, range(20, 26), loaded={**mark, "step": 20})
    record(tmp_path, range(10, 13), loaded={**mark, "step": 10})

    found = [(a["kept"], a["rolled_back"], a["left_behind"]) for a in summarise(open_run(tmp_path)).attempts]

    assert found == [(10, 20, 0), (0, 6, 0), (3, 0, 0)]
