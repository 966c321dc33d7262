"""The list of runs: the newest at once, the others when they are asked for, and nothing read twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.report.runs import record

from lading.kits.web.ui import glances
from lading.kits.web.ui.glances import Glances, version_of


@pytest.fixture
def runs(tmp_path) -> dict[str, Path]:
    """Three runs, the second written to last."""
    found = {name: tmp_path / name for name in "abc"}
    for name, path in found.items():
        record(path, range(5))
        for file in filter(Path.is_file, path.rglob("*")):
            when = 2_000 if name == "b" else 1_000 - ord(name)
            os.utime(file, (when, when))
    return found


def test_the_newest_are_read_at_once_and_the_others_when_asked_for(runs, monkeypatch):
    """Names of all, the newest first; one that was not read has no state; what is known is not read again."""
    read = []
    monkeypatch.setattr(glances, "glance_at", lambda path, points: read.append(path.name) or {"state": "ended"})
    found = Glances(runs)

    first = found.first(1)
    assert [(row["run"], row["state"]) for row in first] == [("b", "ended"), ("a", None), ("c", None)]
    assert read == ["b"]
    assert [row["state"] for row in found.every()] == ["ended"] * 3
    assert [row["state"] for row in found.first(1)] == ["ended"] * 3
    assert sorted(read) == ["a", "b", "c"]


def test_a_run_that_grows_is_read_again(runs):
    """Its version is the size and time of the files that grow."""
    found, before = Glances(runs), version_of(runs["a"])
    assert [row["steps"] for row in found.every()] == [5, 5, 5]

    record(runs["a"], range(5, 9))

    assert version_of(runs["a"]) != before
    assert [row["attempts"] for row in found.every()] == [2, 1, 1]
