"""Verdicts are worked out beside the pages: who asks learns how far it is."""

from __future__ import annotations

import threading

import pytest
from tests.report.runs import record

from lading.errors import LadingError
from lading.kits.web.ui import verdicts
from lading.kits.web.ui.verdicts import Verdicts
from lading.report.run import Run


def test_who_asks_learns_how_far_it_is_and_then_the_verdict(tmp_path, monkeypatch):
    """No request waits for a long verification, and none begins a second one."""
    record(tmp_path / "run", range(20))
    told, go, verified = threading.Event(), threading.Event(), []

    class Slow(Run):
        """A run whose verification waits."""

        def verify(self, progress, **options):
            """Tell how far it is, and wait."""
            verified.append(1)
            progress(0.25, "steps")
            told.set()
            assert go.wait(60)
            return super().verify(**options)

    monkeypatch.setattr(verdicts, "Run", Slow)
    known = Verdicts()

    assert "verifying" in known.of(tmp_path / "run", "1", patience=0)
    assert told.wait(60)
    assert known.of(tmp_path / "run", "1", patience=0) == {"verifying": 0.25}
    go.set()
    found = known.of(tmp_path / "run", "1", patience=60)
    assert (found["holds"], found["steps"]) == (True, 20)
    assert known.of(tmp_path / "run", "2", patience=60) is found, "a run that goes on: at most once a minute"
    assert verified == [1]


def test_a_run_that_cannot_be_verified_says_why(tmp_path):
    """The error is that of opening it."""
    with pytest.raises(LadingError, match=r"run\.json"):
        Verdicts().of(tmp_path / "nothing", "1", patience=60)
