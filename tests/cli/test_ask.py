"""The command line: tables for people, JSON for programs, exit codes for both."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.cli.calling import call
from tests.report.runs import PLAN, record

from lading.cli import GROUPS
from lading.order import Mixture, Plan
from lading.order.event import Reweight


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 100 steps, rolled back once."""
    path = tmp_path_factory.mktemp("cli") / "7"
    record(path, range(80))
    record(path, range(60, 100), world_size=2)
    return path


def call_json(capsys: pytest.CaptureFixture[str], *words: object):
    code, out, err = call(capsys, *words, "--json")
    assert err == ""
    return code, json.loads(out)


QUESTIONS = {
    "show": [],
    "step": [70],
    "where": ["code", 5],
    "mix": ["--by", "epoch"],
    "verify": [],
    "explain": [70],
    "sql": ["SELECT count(*) AS n FROM history"],
}


@pytest.mark.parametrize("verb", QUESTIONS)
def test_every_question_answers_in_a_table_of_80_columns(capsys, monkeypatch, run_dir: Path, verb: str):
    """No line is longer than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")

    code, out, err = call(capsys, verb, run_dir, *QUESTIONS[verb])

    assert (code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("verb", QUESTIONS)
def test_every_question_answers_in_json(capsys, run_dir: Path, verb: str):
    """Exactly one JSON document, nothing else."""
    code, found = call_json(capsys, verb, run_dir, *QUESTIONS[verb])

    assert code == 0
    assert found


def test_step_says_what_the_api_says(capsys, run_dir: Path):
    """The samples of the step, its fate and loss."""
    _, found = call_json(capsys, "step", run_dir, 70)

    assert [(s["dataset"], s["index"]) for s in found["samples"]] == [tuple(s) for s in PLAN.bill(70).samples]
    assert (found["fate"], found["attempt"], found["matches"]) == ("applied", 1, True)


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_explain_says_a_reason_in_full(capsys, monkeypatch, tmp_path: Path, columns: str):
    """Of a decision: on as many lines as it takes, none of its words left out."""
    monkeypatch.setenv("COLUMNS", columns)
    reason = " ".join(f"word{n}" for n in range(40))
    mixed = Plan.make({"code": 700, "prose": 301}, batch_size=16, mixture=Mixture({"code": 1, "prose": 1}))
    record(tmp_path, range(4), plan=mixed.with_events([Reweight(2, 32, (2**29, 3 * 2**29), reason=reason)]))

    out = call(capsys, "explain", tmp_path, 3)[1]

    assert [word for word in reason.split() if word not in out.split()] == []
    assert max(len(line) for line in out.splitlines()) <= int(columns)


def test_where_without_a_use_exits_1(capsys, tmp_path: Path):
    """It does not hold that the sample was used."""
    record(tmp_path, range(10))
    unused = next(i for i in range(700) if not PLAN.where("code", i, 0, 10))

    code, found = call_json(capsys, "where", tmp_path, "code", unused)

    assert (code, found) == (1, [])


def flipped(part: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 0x20
    part.write_bytes(bytes(content))


def cut(part: Path) -> None:
    """Take the end away."""
    part.write_bytes(part.read_bytes()[:-100])


@pytest.mark.parametrize("damage", [Path.unlink, flipped, cut], ids=["deleted", "flipped", "cut"])
def test_verify_exits_1_and_names_file_and_step(capsys, run_dir: Path, tmp_path: Path, damage):
    """A damaged part in a copy of the run."""
    copy = tmp_path / "copy"
    shutil.copytree(run_dir, copy)
    part = next(copy.glob("ledger/attempt=0000/rank=00000/part-*.parquet"))
    damage(part)

    code, out, _ = call(capsys, "verify", copy)

    text = out.replace("\n", "")
    assert code == 1
    assert part.name in text
    assert "first wrong step 0" in text.replace("  ", " ")
    assert call(capsys, "show", copy)[0] == 0, "the rest stays readable"


def test_diff_exits_by_what_it_finds(capsys, run_dir: Path, tmp_path: Path):
    """0 where two runs hold the same, 1 where they do not, with the first step."""
    record(tmp_path / "same", range(100), world_size=4)
    record(tmp_path / "short", range(90))

    assert call(capsys, "diff", run_dir, tmp_path / "same")[0] == 0
    code, found = call_json(capsys, "diff", run_dir, tmp_path / "short")
    assert (code, found["first_difference"], found["kind"]) == (1, 90, "length")
    assert "differ from step 90 on" in call(capsys, "diff", run_dir, tmp_path / "short")[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "nowhere"], "lading: nowhere holds no run: expected nowhere/run.json in it"),
        (["where", "RUN", "poems", "3"], "lading: no dataset 'poems' in this run: it has 'code', 'prose'."),
        (
            ["where", "RUN", "code"],
            "lading: which sample? Expected DATASET and INDEX, DATASET and --document, or --id.",
        ),
        (["where", "RUN", "code", "--document", "3"], "lading: dataset 'code' was not packed"),
        (["mix", "RUN", "--by", "week"], "lading: --by week: expected run, epoch"),
        (["sql", "RUN", "SELECT nothing FROM history"], "lading: DuckDB cannot answer this"),
        (["sql", "RUN", "SELECT 1", "--steps", "3"], "lading: --steps '3': expected FIRST:STOP"),
        (["step", "RUN", "3", "--decode", "nothing"], "lading: --decode 'nothing': expected MODULE:NAME"),
        (["step", "RUN", "three"], "Invalid value for 'STEP': three. Expected a number from 0"),
        (["fly", "RUN"], "fly"),
    ],
)
def test_wrong_use_exits_2_with_one_readable_line(capsys, run_dir: Path, words: list[str], message: str):
    """No traceback, no stack, the way out in the sentence."""
    code, out, err = call(capsys, *(run_dir if word == "RUN" else word for word in words))

    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    if err.startswith("lading:"):
        assert err.count("\n") == 1


def test_block_is_recorded_once(capsys, tmp_path: Path):
    """The second time there is nothing left to block."""
    record(tmp_path, range(10))

    assert call_json(capsys, "block", tmp_path, "code:3", "code:5-6", "--reason", "spam")[1] == {
        "blocked": ["code:3", "code:5", "code:6"]
    }
    assert "all of them were blocked already" in call(capsys, "block", tmp_path, "code:5")[1]


def test_decode_shows_the_samples(capsys, monkeypatch, run_dir: Path, tmp_path: Path):
    """From a module in the current folder."""
    (tmp_path / "mysources.py").write_text(
        "sources = {'code': [f'code text {i}' for i in range(700)], 'prose': [f'prose text {i}' for i in range(301)]}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    _, found = call_json(capsys, "step", run_dir, 3, "--decode", "mysources:sources")

    assert [s["content"] for s in found["samples"]] == [f"{s['name']} text {s['index']}" for s in found["samples"]]
    assert "Content" in call(capsys, "explain", run_dir, 3, "--decode", "mysources:sources")[1]


def test_documents_are_found_through_the_packing_index(capsys, tmp_path: Path):
    """Which steps used a document: its rows, then the rows' steps, with token spans."""
    from lading.order import Plan
    from lading.order.packing.file import save_index
    from lading.order.packing.index import PackingIndex

    index = save_index(PackingIndex.build([5, 20, 3, 9, 4], row_length=8, overflow="split"), tmp_path)
    plan = Plan.make({"corpus": len(index)}, batch_size=2, seed=1)
    record(tmp_path / "run", range(plan.epoch_steps(0)), plan=plan)

    code, found = call_json(
        capsys, "where", tmp_path / "run", "corpus", "--document", 1, "--store", f"corpus={index.path}"
    )

    assert code == 0
    rows = {piece.row for piece in index.rows_of_document(1)}
    assert {row["index"] for row in found} == rows
    assert all(plan.bill(row["step"]).idx[row["slot"]] == row["index"] for row in found)
    assert found[0]["tokens"].startswith("0–")


def test_long_names_lose_their_middle_and_numbers_nothing(capsys, monkeypatch, tmp_path: Path):
    """At 80 columns every number is there, and the end of the name that tells it from the others."""
    from lading.order import Plan

    monkeypatch.setenv("COLUMNS", "80")
    names = [f"common-crawl-2023-50-filtered-and-deduplicated-in-language-number-{i:02d}" for i in range(12)]
    record(tmp_path, range(5), plan=Plan.make(dict.fromkeys(names, 123_456), batch_size=24))

    out = call(capsys, "show", tmp_path)[1]

    assert max(len(line) for line in out.splitlines()) <= 80
    assert out.count("123 456") == 12
    assert all(f"{i:02d} " in out for i in range(12))
    wide = call(capsys, "sql", tmp_path, "SELECT * FROM history ORDER BY step LIMIT 1")[1]
    assert f"digest    {first_digest(names)}" in wide


def first_digest(names: list[str]) -> str:
    from lading.order import Plan

    return f"{Plan.make(dict.fromkeys(names, 123_456), batch_size=24).bill(0).digest:016x}"


def test_names_are_never_read_as_markup(capsys, tmp_path: Path):
    """A dataset called [red]x[/red] stays what it is."""
    from lading.order import Plan

    record(tmp_path, range(3), plan=Plan.make({"[red]x[/red]": 100}, batch_size=4))

    assert "[red]x[/red]" in call(capsys, "show", tmp_path)[1]


def test_help_names_every_verb(capsys):
    """What it imports for that: test_ask_imports.py."""
    _, said, _ = call(capsys, "--help")

    assert all(verb in said for group in GROUPS.values() for verb in group)


def test_show_counts_what_each_attempt_kept_and_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The columns are there and hold the numbers."""
    monkeypatch.setenv("COLUMNS", "200")
    mark = record(tmp_path, range(30))
    record(tmp_path, range(20, 23), loaded={**mark, "step": 20})

    _, shown, _ = call(capsys, "show", tmp_path)

    (row,) = [line.split() for line in shown.splitlines() if "nothing" in line]
    assert row[-3:-1] == ["20", "10"]


def test_another_line_of_history_is_asked_for_by_its_attempt(capsys, run_dir: Path):
    """Every question takes --attempt; verify prints the head of the log."""
    _, newest = call_json(capsys, "sql", run_dir, "SELECT max(step) AS last FROM history")
    _, first = call_json(capsys, "sql", run_dir, "SELECT max(step) AS last FROM history", "--attempt", 0)
    code, verdict = call_json(capsys, "verify", run_dir, "--attempt", 0)

    assert (newest[0]["last"], first[0]["last"]) == (99, 79)
    assert (code, verdict["steps"], verdict["head"]["number"]) == (0, 80, 2)
    assert call(capsys, "show", run_dir, "--attempt", 7)[0] == 2
