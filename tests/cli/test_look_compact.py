"""lading compact."""

from __future__ import annotations

import json

from tests.cli.calling import lading
from tests.report.runs import record


def test_compact_says_what_it_did(tmp_path, capsys):
    """For people and for programs; damage is exit code 1, and named."""
    record(tmp_path / "run", range(20), close=False, part_rows={"batches": 5})

    assert lading("compact", tmp_path / "run") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("closed 1 and merged 1 of 1 ranks") and said.endswith("Parquet files became 1")
    assert lading("compact", tmp_path / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["closed"] == 0

    manifest = next((tmp_path / "run").rglob("manifest.jsonl"))
    manifest.write_bytes(manifest.read_bytes()[:-30])
    assert lading("compact", tmp_path / "run") == 1
    assert "left as it is" in " ".join(capsys.readouterr().out.split())
    assert lading("compact", tmp_path / "nothing") == 2
