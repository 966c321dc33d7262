"""Exit codes: 0 it holds or nothing is wrong, 1 it does not hold, 2 wrong use; of every verb, as the docs say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.cli.calling import ask, lading
from tests.report.runs import PLAN, record

from lading.cli import VERBS

DOCS = Path(__file__).parents[2] / "docs/reference/cli.md"
QUESTIONS = {
    "ls": ["FOLDER"],
    "show": ["RUN"],
    "step": ["RUN", "3"],
    "where": ["RUN", "code", "USED"],
    "mix": ["RUN"],
    "verify": ["RUN"],
    "diff": ["RUN", "SAME"],
    "explain": ["RUN", "3"],
    "spikes": ["RUN"],
    "bad": ["RUN"],
    "export": ["RUN", "--to", "OUT"],
    "block": ["RUN", "code:5"],
    "compact": ["RUN"],
    "seal": ["RUN"],
    "sql": ["RUN", "SELECT 1"],
    "plan": ["PLAN"],
    "report": ["RUN", "--out", "PAGE"],
}
WRONG = {
    "verify": ["DAMAGED"],
    "show": ["BROKEN"],
    "diff": ["RUN", "SHORT"],
    "where": ["RUN", "code", "UNUSED"],
    "compact": ["BROKEN"],
    "seal": ["BROKEN"],
    "plan": ["PLAN", "--max-passes", "0.1"],
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path | str]:
    """Runs that hold, and some that do not."""
    home = tmp_path_factory.mktemp("exit-codes")
    for name, steps in {"run": 6, "same": 6, "short": 3}.items():
        record(home / "runs" / name, range(steps))
    for name in ("damaged", "broken"):
        shutil.copytree(home / "runs/run", home / name)
    part = next((home / "damaged").rglob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-9] + b"something")
    (home / "broken/run.json").write_text("{")
    (home / "plan.yaml").write_text("datasets: {code: 70}\nbatch_size: 8\nuntil: 20ba\n")
    used = {s.index for step in range(6) for s in PLAN.bill(step).samples if s.dataset == 0}
    return {
        **{name.upper(): home / "runs" / name for name in ("run", "same", "short")},
        "FOLDER": home / "runs",
        "DAMAGED": home / "damaged",
        "BROKEN": home / "broken",
        "PLAN": home / "plan.yaml",
        "OUT": home / "out.csv",
        "PAGE": home / "page.html",
        "NOWHERE": home / "nowhere",
        "USED": str(min(used)),
        "UNUSED": str(min({*range(700)} - used)),
    }


@pytest.mark.parametrize("verb", QUESTIONS)
def test_a_question_without_anything_wrong_ends_with_0(places, capsys, verb: str):
    """Nothing found is nothing wrong: spikes and bad samples too."""
    assert lading(verb, *(places.get(word, word) for word in QUESTIONS[verb])) == 0, capsys.readouterr()


@pytest.mark.parametrize("verb", WRONG)
def test_what_does_not_hold_ends_with_1(places, capsys, verb: str):
    """A damaged file is no wrong use, whichever file it is."""
    assert lading(verb, *(places.get(word, word) for word in WRONG[verb])) == 1, capsys.readouterr()


@pytest.mark.parametrize("verb", QUESTIONS)
def test_wrong_use_ends_with_2(places, capsys, verb: str):
    """What is asked for is not there."""
    words = [{"RUN": "NOWHERE", "FOLDER": "NOWHERE", "PLAN": "NOWHERE"}.get(word, word) for word in QUESTIONS[verb]]

    assert lading(verb, *(places.get(word, word) for word in words)) == 2, capsys.readouterr()


def test_a_file_that_cannot_be_written_is_wrong_use(places):
    """No traceback, and not the code of a run that does not hold."""
    code, _ = ask("export", places["RUN"], "--to", places["NOWHERE"] / "deep" / "out.csv")

    assert code == 2


def test_the_docs_have_the_exit_codes_of_every_verb():
    """One table, no verb left out."""
    table = DOCS.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]

    assert {verb for row in rows for verb in re.findall(r"`([\w-]+)", row)} == {*VERBS}
