"""``lading ui``: what it refuses, and what it says. A browser drives it in tests/kits/web/ui."""

from __future__ import annotations

import socket

import pytest
from tests.cli.calling import lading
from tests.report.runs import record


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "--no-token", "--host", "0.0.0.0"], "whoever reaches this machine could read the runs"),
        (["nowhere"], "nowhere is no folder"),
        (["EMPTY"], "holds no run"),
        (["RUN", "--decode", "nothing"], "--decode 'nothing': expected MODULE:NAME"),
        (["RUN", "--decode", "math:pi"], "is a float: expected a dict of datasets by name"),
        (["RUN", "--port", "BUSY"], "cannot be listened at"),
    ],
)
def test_wrong_use_is_one_line_and_nothing_is_served(capsys, monkeypatch, tmp_path, words, message):
    """With the way out."""
    record(tmp_path / "run", range(3))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lading.kits.web.verbs._server", lambda: lambda *given: pytest.fail("it was served"))
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        named = {"RUN": tmp_path / "run", "EMPTY": tmp_path / "empty", "BUSY": busy.getsockname()[1]}
        code = lading("ui", *(named.get(word, word) for word in words))

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_the_address_holds_a_token_unless_it_is_switched_off(capsys, monkeypatch, tmp_path):
    """And the port that was free."""
    record(tmp_path / "run", range(3))
    monkeypatch.setattr(
        "lading.kits.web.verbs._server", lambda: lambda application: lambda listening: listening.close()
    )

    assert lading("ui", tmp_path, "--port", 0) == 0
    with_token = capsys.readouterr().out
    assert lading("ui", tmp_path, "--port", 0, "--no-token") == 0
    without = capsys.readouterr().out

    assert len(with_token.splitlines()[0].partition("?token=")[2]) >= 32
    assert "token" not in without and without.startswith("http://127.0.0.1:")
