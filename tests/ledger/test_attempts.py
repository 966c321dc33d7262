"""Which attempt owns which steps."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lading.errors import CorruptLedgerError
from lading.ledger.attempts import lineage, read_launch
from lading.ledger.run_folder import RunFolder


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12))
def test_every_step_has_one_owner_the_newest_that_reaches_back_to_it(starts: list[int]):
    """A later attempt owns everything from its first step on; spans touch and never overlap."""
    spans = lineage(enumerate(starts))

    for step in range(min(starts), 60):
        newest = max(attempt for attempt, start in enumerate(starts) if start <= step)
        assert [span.attempt for span in spans if step in span] == [newest]
    assert spans[-1].stop is None
    assert all(a.stop == b.start for a, b in itertools.pairwise(spans))


def test_no_attempt_no_spans():
    """A run that has only been described has no history."""
    assert lineage([]) == []


def test_a_launch_that_is_gone_is_named(tmp_path: Path):
    """The error says which file, and that it must come from a copy."""
    with pytest.raises(CorruptLedgerError, match=r"launch.json is missing: nobody can say where attempt 3 began"):
        read_launch(RunFolder(tmp_path), 3)


def test_a_launch_that_was_altered_is_named(tmp_path: Path):
    """A launch file with other fields is not believed."""
    run = RunFolder(tmp_path)
    run.attempt(0).mkdir(parents=True)
    run.launch(0).write_text('{"attempt": 0}')

    with pytest.raises(CorruptLedgerError, match="is not what a ledger wrote"):
        read_launch(run, 0)
