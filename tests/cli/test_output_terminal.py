"""What a run, a plan or a corpus says is shown on the terminal and in the page, never obeyed."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import types
from pathlib import Path

import pytest
from tests.report.runs import leave

from lading import build_tokens
from lading.cli import VERBS, _app, main
from lading.ledger import Ledger
from lading.order import Plan

ATTACKS = {
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;pwned\x07",
    "link": "\x1b]8;;http://evil\x1b\\",
    "c1": "\x9b31m",
    "return": "\rholds: 9 steps\n",
    "bidi": "\u202eedoc\u202c\u2066",
    "hidden": "\u200b\ufeff\u2028",
    "markup": "[bold red]x[/][link=http://evil]",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>",
}
NAME, OTHER = "".join(ATTACKS.values()), "prose" + ATTACKS["clear"]
ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
PLAN = Plan.make({NAME: 50, OTHER: 30}, batch_size=8, seed=1)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    """A run whose names, reasons and metrics are escape sequences."""
    path = tmp_path_factory.mktemp("hostile") / "7"
    ledger = Ledger(path, PLAN)
    for step in range(8):
        bill = PLAN.bill(step)
        ledger.deliver(bill)
        if step == 3:
            ledger.skip(bill, NAME)
        else:
            ledger.commit(bill, update=step, loss=1.0, **{f"m{ATTACKS['title']}": 1.0})
    ledger.flush()
    leave(ledger)
    return path


def said(capsys, *words: object) -> str:
    """Run the command; return everything it wrote."""
    with contextlib.suppress(SystemExit):
        main([str(word) for word in words])
    return "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "question",
    [
        ["show"],
        ["step", 3],
        ["step", 4],
        ["where", OTHER, 5],
        ["where", "\x1b[2Jnone", 5],
        ["mix"],
        ["mix", "--by", "epoch"],
        ["verify"],
        ["explain", 4],
        ["sql", "FROM history"],
        ["sql", "FROM samples"],
        ["sql", 'SELECT 1 AS "a\x1b[2J"'],
        ["sql", "SELECT error('\x1b[2J')"],
        ["block", "\x1b[2J:1"],
        ["step", 4, "--decode", "hostile_sources:sources"],
        ["explain", 4, "--decode", "hostile_sources:sources"],
    ],
    ids=lambda q: " ".join(map(str, q)).encode("unicode_escape").decode(),
)
def test_no_verb_passes_on_what_acts(capsys, monkeypatch, hostile, question):
    """Escape sequences, control characters, bidi overrides and hidden characters are spelled out."""
    sources = types.ModuleType("hostile_sources")
    sources.sources = {NAME: [NAME] * 50, OTHER: [OTHER] * 30}
    monkeypatch.setitem(sys.modules, "hostile_sources", sources)

    found = said(capsys, question[0], hostile, *question[1:])

    assert found.strip()
    assert ACTS.findall(found) == []


def test_colours_are_ours_alone(capsys, monkeypatch, hostile):
    """Where the terminal has colours, the only sequences are those that set and reset them."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    found = said(capsys, "show", hostile)

    assert ACTS.findall(re.sub(r"\x1b\[[0-9;]*m", "", found)) == []


def test_json_escapes_everything(capsys, hostile):
    """Programs get the names as they are, terminals nothing that acts."""
    found = said(capsys, "show", hostile, "--json")

    assert ACTS.findall(found) == []
    assert {row["dataset"] for row in json.loads(found)["datasets"]} == {NAME, OTHER}


def test_the_page_shows_and_does_not_run(capsys, hostile, tmp_path):
    """In HTML the same names are text: no element, no handler, no writing turned round."""
    said(capsys, "report", hostile, "--out", tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "<img src=x" not in page
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page) == []


def test_plans_and_corpora_are_shown_too(capsys, tmp_path):
    """A plan file and a token store may come from anywhere as well."""
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "a.txt").write_text("hello")
    build_tokens([tmp_path / "a.txt"], tmp_path / "corpus")
    file = tmp_path / "corpus" / "tokens.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tokenizer": NAME}))

    for words in (["plan", tmp_path / "plan.json"], ["tokens", "show", tmp_path / "corpus"]):
        found = said(capsys, *words)
        assert "x1b" in found
        assert ACTS.findall(found) == []


def test_an_error_is_one_line_without_sequences(capsys, tmp_path):
    """File names come from outside as well."""
    found = said(capsys, "show", tmp_path / "a\x1b[2J\u202eb")

    assert found.startswith("lading: ") and found.count("\n") == 1
    assert ACTS.findall(found) == []


def test_a_page_that_cannot_be_written_is_one_line(capsys, hostile, tmp_path):
    """A folder that is missing or read-only is named, with the way out."""
    found = said(capsys, "report", hostile, "--out", tmp_path / "none" / "page.html")

    assert "cannot be written: No such file" in found and "-o" in found


def test_what_a_verb_writes_is_named_by_out_everywhere():
    """``--out`` and ``-o`` in every verb that writes a file or a folder of the user's choice."""
    typer = pytest.importorskip("typer")
    found = []
    for verb in VERBS:
        command = typer.main.get_command(_app(verb)).commands[verb]
        for one in (command, *getattr(command, "commands", {}).values()):
            found += [(one.name, set(option.opts)) for option in one.params if option.name in ("out", "to")]

    assert {"report", "export", "build"} <= {name for name, _ in found}
    assert [name for name, options in found if not {"--out", "-o"} <= options] == []
