"""How the command line receives people: groups of verbs, steps from the end, completion, texts, pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.calling import call
from tests.report.runs import record

from lading import Ledger, Loader, PackedRows, PackingRules, build_tokens
from lading.cli import FORMER, GROUPS, VERBS

LONG = "a-run-with-a-name-that-is-longer-than-any-column-of-a-table-would-be-if-names-were-cut-to-fit"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs; the last one begun has a long name, and each a configuration."""
    home = tmp_path_factory.mktemp("verbs")
    for number, name in enumerate(["b", "a", LONG]):
        with Ledger(home / name, config={"lr": 0.1 * number, "seed": 7}) as ledger:
            for _, bill in Loader({"code": range(40), "prose": range(20)}, 10, tracker=ledger).with_bills():
                ledger.commit(bill, loss=1.0)
    return home


def test_verbs_are_in_four_groups_of_at_most_eight(capsys):
    """`lading --help` can be read at a glance; words that became options are not in it."""
    _, out, _ = call(capsys, "--help")

    assert len(GROUPS) == 4 and max(map(len, GROUPS.values())) <= 8
    assert [title for title in GROUPS if f"{title}:" in out] == [*GROUPS]
    assert not [verb for verb in FORMER if f"\n  {verb} " in out] and {*FORMER} <= {*VERBS}
    assert "..." not in out.partition("Ask a run")[2]


def test_ls_is_newest_first_uncut_and_says_what_differs(capsys, home, monkeypatch):
    """On a narrow terminal, too; of the configuration only what tells the runs apart."""
    monkeypatch.setenv("COLUMNS", "60")

    narrow = call(capsys, "ls", home)[1]
    monkeypatch.delenv("COLUMNS")
    piped = call(capsys, "ls", home)[1]

    assert LONG in narrow.replace("\n", "").replace(" ", "")
    lines = [line for line in piped.splitlines() if line[:1].isalnum()][1:]
    assert [line.split()[0] for line in lines] == [LONG, "a", "b"]
    assert "lr" in piped and "seed" not in piped and "…" not in piped


def test_a_folder_of_runs_names_ls(capsys, home):
    """Whoever asks a folder is told how to list it."""
    code, _, err = call(capsys, "show", home)

    assert code == 2
    assert f"{home} is no run: it holds 3 runs. `lading ls {home}` lists them" in err


def test_steps_count_from_the_end(capsys, tmp_path):
    """As in Python, without a word that protects the minus; options may follow."""
    record(tmp_path / "run", range(9))

    assert call(capsys, "step", tmp_path / "run", -1, "--json")[1].count('"step": 8,')
    assert "e0-s7-" in call(capsys, "step", tmp_path / "run", "-2")[1]
    assert call(capsys, "explain", tmp_path / "run", -1)[0] == 0
    code, _, err = call(capsys, "step", tmp_path / "run", -10)
    assert code == 2 and "expected at most 9 back" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mix", "RUN", "--by", "month"], "--by month: expected run, epoch, chunk, attempt or a number of steps."),
        (["step", "RUN", "ten"], "Invalid value for 'STEP': ten. Expected a number from 0, or -1 for the last step"),
    ],
)
def test_errors_use_the_words_that_were_typed(capsys, tmp_path, words, said):
    """Options and arguments, not the names of parameters in Python."""
    record(tmp_path, range(3))

    code, _, err = call(capsys, *[tmp_path if word == "RUN" else word for word in words])

    assert code == 2 and said in err


def test_spikes_and_bad_samples_are_options_of_show(capsys, tmp_path):
    """The same answers as the words they had before."""
    record(tmp_path / "run", range(9))

    for option, former in (("--spikes", "spikes"), ("--bad", "bad")):
        assert call(capsys, "show", tmp_path / "run", option)[1] == call(capsys, former, tmp_path / "run")[1]


def test_the_shell_completes_names_of_datasets(home):
    """As the shell asks: the words so far, and where the cursor is."""
    asked = {"_TYPER_COMPLETE_ARGS": f"lading where {home / 'a'} pr", "_LADING_COMPLETE": "complete_bash"}
    asked |= {"COMP_WORDS": f"lading where {home / 'a'} pr", "COMP_CWORD": "3"}
    command = [sys.executable, "-c", "from lading.cli import main; main()"]

    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=120)

    assert done.stdout.split() == ["prose"]


def test_packed_rows_are_shown_as_text_unasked(capsys, tmp_path):
    """Where the store knows its tokenizer; the plan knows where the store lies."""
    (tmp_path / "text.txt").write_text("Once upon a time there was a ledger.\n" * 20)
    store = build_tokens(tmp_path / "text.txt", tmp_path / "store")
    rows = PackedRows(store, PackingRules(64, overflow="split"))
    with Ledger(tmp_path / "run") as ledger:
        for _, bill in Loader({"tale": rows}, 2, tracker=ledger).with_bills():
            ledger.commit(bill)

    assert "Once upon a time" in call(capsys, "step", tmp_path / "run", 0)[1]
