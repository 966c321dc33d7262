"""lading seal, and what verify says before and after."""

from __future__ import annotations

import json

from tests.cli.calling import lading
from tests.report.runs import record


def test_verify_names_what_is_not_sealed_and_seal_seals_it(tmp_path, capsys):
    """A killed run holds, with exit code 0 and the command to call; afterwards there is nothing to say."""
    run = tmp_path / "run"
    record(run, range(20), close=False)

    assert lading("verify", run) == 0
    assert "steps 0 to 19 are not sealed yet: lading seal RUN" in capsys.readouterr().out
    assert lading("seal", run) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("sealed 1 ranks: ")
    assert lading("verify", run) == 0
    assert "sealed" not in capsys.readouterr().out
    assert lading("seal", run, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"seal": said.split()[-1], "ranks": 0, "running": 0, "damaged": []}


def test_a_damaged_rank_is_not_sealed(tmp_path, capsys):
    """It stays open, is named, and the exit code is 1."""
    run = tmp_path / "run"
    record(run, range(20), close=False)
    tail = next(run.rglob("tail"))
    tail.write_bytes(tail.read_bytes()[:-30] + b"?" * 30)

    assert lading("seal", run) == 1
    assert "is damaged or gone; not sealed" in " ".join(capsys.readouterr().out.split())
    assert lading("seal", tmp_path / "nothing") == 2
