"""The verbs that list: every one at every width, for people and programs, with errors that show the way."""

from __future__ import annotations

import csv
import json
import re
import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from tests.cli.calling import call
from tests.launching import wait_until
from tests.report.runs import PLAN, record
from torch.utils.data import DataLoader, TensorDataset

import lading
from lading.cli import VERBS
from lading.identity import Bill, Deviation
from lading.ledger import Ledger
from lading.order import Plan
from lading.report import open_run
from lading.report.folder import glance_at, named_runs

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def with_deviation(bill: Bill, kind: str, slot: int, substitute: int | None, reason: str) -> Bill:
    """Return a bill one of whose samples could not be read."""
    deviation = Deviation(slot, kind, int(bill.dataset_idx[slot]), int(bill.idx[slot]), substitute, reason)
    index, padding = bill.idx.copy(), bill.is_padding.copy()
    if substitute is None:
        padding[slot] = True
    else:
        index[slot] = substitute
    return bill.replace(idx=index, is_padding=padding, deviations=(deviation,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in a folder: one rolled back on two ranks, one with bad samples, a skipped step and a spike."""
    home = tmp_path_factory.mktemp("look") / "runs"
    mark = record(home / "a" / "7", range(80))
    record(home / "a" / "7", range(60, 100), world_size=2, loaded={**mark, "step": 60})
    with Ledger(home / "bad", PLAN) as ledger:
        for step in range(90):
            bill = PLAN.bill(step)
            if step == 5:
                bill = with_deviation(bill, "substituted", 3, 11, "OSError: no such file")
            elif step == 6:
                bill = with_deviation(bill, "skipped", 0, None, "ValueError: empty")
            ledger.deliver(bill)
            if step == 7:
                ledger.skip(bill, "overflow")
            else:
                ledger.commit(bill, update=step, loss=2.0 + 0.01 * (step % 5) + (step == 70))
    return home


def verbs(runs: Path, tmp_path: Path) -> dict[str, list[object]]:
    """Return a call of every verb that reads runs."""
    run = runs / "bad"
    return {
        "ls": [runs],
        "show": [run],
        "step": [run, "last"],
        "where": [run, "code", 5],
        "mix": [run],
        "verify": [run],
        "diff": [run, runs / "a" / "7"],
        "explain": [run, 70],
        "spikes": [run],
        "bad": [run],
        "export": [run, "--to", tmp_path / "rows.csv"],
        "block": [runs / "a" / "7", "code:9"],
        "sql": [run, "SELECT step, loss FROM history LIMIT 3"],
        "report": [run, "--out", tmp_path / "page.html"],
    }


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verb", verbs(Path(), Path()))
def test_every_verb_fits_the_terminal_and_sends_no_colour_to_a_file(
    capsys, monkeypatch, runs, tmp_path, verb: str, width: int
):
    """Not a terminal, NO_COLOR set or not: plain text, no line too long."""
    monkeypatch.setenv("COLUMNS", str(width))
    if width == 120:
        monkeypatch.setenv("NO_COLOR", "1")

    code, out, err = call(capsys, verb, *verbs(runs, tmp_path)[verb])

    assert code in (0, 1) and err == ""
    assert "\x1b" not in out
    if verb not in ("export", "report"):  # they print a path
        assert max(len(line) for line in out.splitlines()) <= width


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(capsys, monkeypatch, verb: str):
    """Two lines are worth a page."""
    monkeypatch.setenv("COLUMNS", "80")

    code, out, _ = call(capsys, verb, "--help")

    assert code == 0
    assert re.search(rf"Example: lading\s+{verb}\b", out), out
    assert max(len(line) for line in out.splitlines()) <= 80


def documented(verb: str) -> dict[str, set[str]]:
    """Return the keys that the reference lists, by the part of the answer ("" the whole)."""
    rows = re.findall(rf"^\| `{verb}`(?:, `(\w+)`)? \| (.*) \|$", DOCS.read_text(), re.MULTILINE)
    return {part: set(re.findall(r"`(\w+)`", text)) for part, text in rows}


@pytest.mark.parametrize("verb", [v for v in verbs(Path(), Path()) if v != "sql"])
def test_json_has_the_keys_that_are_documented(capsys, runs, tmp_path, verb: str):
    """Programs rely on them: snake_case, all of them in the reference."""
    _, out, err = call(capsys, verb, *verbs(runs, tmp_path)[verb], "--json")

    found = json.loads(out)
    keys = documented(verb)
    top = found[0] if isinstance(found, list) else found
    expected = keys[""]
    if verb == "explain":
        expected = (expected - {"step"}) | documented("step")[""]
    assert err == ""
    assert set(top) == expected
    for part in set(keys) - {""}:
        inner = top[part][0] if isinstance(top[part], list) else top[part]
        assert set(inner) == keys[part] - ({"content"} if verb == "step" else set())
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in top)


def test_ls_says_what_show_and_diff_say(capsys, runs):
    """The quick look at a run is the same as the long one."""
    rows = json.loads(call(capsys, "ls", runs, "--json")[1])

    assert [row["run"] for row in rows] == ["bad", "a/7"]
    for row in rows:
        run = open_run(runs / row["run"])
        history = run.history
        assert row["steps"] == len(history)
        assert int(row["digest"], 16) == sum(history["digest"]) % 2**64 == run.verify().digest
        assert row["loss"] == pytest.approx(history["loss"][-1])
        assert row["state"] == "ended"


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(capsys, runs, tmp_path):
    """One broken folder does not hide the others."""
    record(tmp_path / "good", range(3))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")

    rows = json.loads(call(capsys, "ls", tmp_path, "--json")[1])

    assert [(row["run"], row["state"]) for row in rows] == [("good", "ended"), ("broken", "damaged")]
    assert "run.json" in rows[1]["problem"]


def test_a_run_with_a_file_that_was_altered_has_not_just_ended(tmp_path):
    """What can still be read is listed, and what cannot is named."""
    record(tmp_path, range(3))
    [part] = tmp_path.glob("ledger/*/rank=*/part-*.parquet")
    part.write_bytes(part.read_bytes()[:-1] + b"?")

    found = glance_at(tmp_path)

    assert (found["state"], part.name in found["problem"]) == ("damaged", True)


def test_runs_of_several_folders_have_names_of_their_own(tmp_path):
    """Two runs called 7 stay two."""
    for folder in ("a", "b"):
        record(tmp_path / folder / "7", range(2))

    names = named_runs([tmp_path / "a" / "7", tmp_path / "b" / "7"])

    assert len(names) == 2 and "7" in names
    assert glance_at(names["7"])["steps"] == 2


def test_the_last_step_has_a_name(capsys, runs):
    """last, and -1 after --."""
    run = runs / "bad"

    last = json.loads(call(capsys, "step", run, "last", "--json")[1])
    counted = json.loads(call(capsys, "step", run, "--json", "--", "-2")[1])

    assert (last["step"], counted["step"]) == (89, 88)
    assert call(capsys, "step", run, "--", "-91")[0] == 2


def test_where_and_show_name_bad_and_skipped_uses(capsys, runs):
    """A sample that was planned and could not be read is not silently missing."""
    run = runs / "bad"
    replaced, left_out = PLAN.bill(5).samples[3], PLAN.bill(6).samples[0]
    skipped = PLAN.bill(7).samples[0]

    found = json.loads(call(capsys, "where", run, replaced.dataset, replaced.index, "--json")[1])
    gone = json.loads(call(capsys, "where", run, left_out.dataset, left_out.index, "--json")[1])
    unused = json.loads(call(capsys, "where", run, skipped.dataset, skipped.index, "--json")[1])
    instead = json.loads(call(capsys, "where", run, replaced.dataset, 11, "--json")[1])
    shown = json.loads(call(capsys, "show", run, "--json")[1])

    assert [(r["fate"], r["note"]) for r in found if r["step"] == 5] == [
        ("bad", "11 in its place (OSError: no such file)")
    ]
    assert [r["note"] for r in gone if r["step"] == 6] == ["left out (ValueError: empty)"]
    assert [(r["fate"], r["note"]) for r in unused if r["step"] == 7] == [("skipped", "overflow")]
    assert any(r["step"] == 5 and r["note"].startswith("in place of") for r in instead)
    assert [row["step"] for row in shown["bad"]] == [5, 6] and shown["skipped"][0]["step"] == 7
    assert "1 bad or skipped" in call(capsys, "where", run, replaced.dataset, replaced.index)[1]


def test_one_time_is_not_one_times(capsys, tmp_path):
    """English."""
    record(tmp_path, range(3), plan=Plan.make({"a": 48}, batch_size=16))

    assert "a:5: used 1 time\n" in re.sub(r" +\n", "\n", call(capsys, "where", tmp_path, "a", 5)[1])


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("table", ["history", "samples", "mix"])
def test_export_writes_what_the_questions_return(capsys, runs, tmp_path, table: str, suffix: str):
    """Every row, in every form."""
    run, target = open_run(runs / "bad"), tmp_path / f"rows.{suffix}"
    expected = {"history": run.history, "mix": run.mix("epoch"), "samples": run.sql("FROM samples")}[table].arrow

    code, out, _ = call(capsys, "export", runs / "bad", "--to", target, "--table", table, "--json")

    assert (code, json.loads(out)["rows"]) == (0, len(expected))
    if suffix == "parquet":
        assert pq.read_table(target).select(expected.column_names).equals(expected)
        return
    lines = target.read_text().splitlines()
    rows = [json.loads(line) for line in lines] if suffix == "jsonl" else list(csv.DictReader(lines))
    assert [str(row["dataset" if table != "history" else "step"]) for row in rows] == [
        str(value) for value in expected["dataset" if table != "history" else "step"].to_pylist()
    ]
    assert list(tmp_path.iterdir()) == [target]


def test_a_cell_is_no_formula(capsys, tmp_path):
    """A spreadsheet that opens the file runs nothing."""
    plan = Plan.make({"=cmd()": 30}, batch_size=4)
    record(tmp_path / "run", range(2), plan=plan)

    call(capsys, "export", tmp_path / "run", "--table", "mix", "--to", tmp_path / "mix.csv")

    assert "'=cmd()" in (tmp_path / "mix.csv").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ls", "nowhere"], "nowhere is no folder"),
        (["ls", "EMPTY"], "holds no run"),
        (["export", "RUN", "--to", "steps.xlsx"], "expected a file that ends in .parquet, .csv, .jsonl"),
        (["export", "RUN", "--to", "none/steps.csv"], "cannot be written: No such file"),
        (["export", "RUN", "--to", "s.csv", "--table", "loss"], "expected history, samples, mix"),
        (["spikes", "nowhere"], "holds no run"),
        (["bad", "nowhere"], "holds no run"),
        (["step", "RUN", "--", "-1000"], "expected at most 90 back"),
    ],
)
def test_wrong_use_is_one_line(capsys, monkeypatch, runs, tmp_path, words: list[str], message: str):
    """With the way out."""
    monkeypatch.chdir(tmp_path)
    named = {"RUN": runs / "bad", "EMPTY": tmp_path}

    code, out, err = call(capsys, *(named.get(word, word) for word in words))

    assert (code, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_watch_follows_a_run_until_it_ends(capsys, tmp_path):
    """A line for each change, as soon as it is asked for; it ends by itself."""
    ledger = Ledger(tmp_path, PLAN)
    ledger.begin(0)
    ledger.commit(PLAN.bill(0), update=0, loss=1.0)
    ledger.flush()

    def train() -> None:
        for step in range(1, 4):
            wait_until(lambda: f"steps applied {step}" in sys.stdout.getvalue())  # noqa: B023
            ledger.commit(PLAN.bill(step), update=step, loss=1.0 / step)
            ledger.flush()
        ledger.close()

    training = threading.Thread(target=train)
    training.start()
    code, out, _ = call(capsys, "show", tmp_path, "--watch", "--every", "0.1")
    training.join()

    lines = out.splitlines()
    assert code == 0 and len(lines) >= 4
    assert lines[0].startswith("running: steps applied 1") and lines[-1].startswith("ended: steps applied 4")


def test_tracked_runs_know_lengths_and_passes(capsys, tmp_path):
    """How much of a foreign loader's data was seen."""
    loader = DataLoader(TensorDataset(torch.arange(40.0)), batch_size=8, shuffle=True)
    tracked = lading.track(loader, run=tmp_path / "run")
    for _ in range(2):
        assert len(list(tracked)) == 5
    tracked.ledger.close()

    (row,) = json.loads(call(capsys, "show", tmp_path / "run", "--json")[1])["datasets"]

    assert row["length"] == 40 and row["passes"] == pytest.approx(2.0) and row["coverage"] == 1.0


def test_the_version_and_completion(capsys):
    """-V, and the shell's question which verbs begin so."""
    assert call(capsys, "-V")[1].startswith("lading 0.")
    assert "--install-completion" in call(capsys, "--help")[1]
