"""Where a sample was used, by arithmetic over all steps or only over those that were recorded."""

from __future__ import annotations

import json

import pytest
from tests.report.runs import record

from lading.errors import CorruptLedgerError
from lading.ledger.description import read_description
from lading.ledger.run_folder import RunFolder
from lading.report import open_run, where


def test_both_ways_to_look_find_the_same_places(tmp_path, monkeypatch):
    """A run that spans too many passes is looked through step by step: one that says so took 130 GB."""
    record(tmp_path / "run", range(150), world_size=2)
    run = open_run(tmp_path / "run")
    arithmetic = [run.where("prose", index).dicts() for index in (0, 41, 300)]

    monkeypatch.setattr(where, "_MOST_PASSES", 0)
    recorded = [open_run(tmp_path / "run").where("prose", index).dicts() for index in (0, 41, 300)]

    assert recorded == arithmetic and all(len(found) >= 2 for found in arithmetic)


def test_two_datasets_of_one_name_are_refused(tmp_path):
    """The page of such a run could not be drawn."""
    record(tmp_path / "run", range(2))
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "datasets": ["code", "code"]}))

    with pytest.raises(CorruptLedgerError, match="two that are called 'code'"):
        read_description(RunFolder(tmp_path / "run"))
