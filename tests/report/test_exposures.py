"""Tables of what was used: equal to a count over what was delivered, up to any step, by sample and by document."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.cli.calling import call
from tests.report.checkpoint.models import held as held_by, plan_of, trained
from tests.report.runs import PLAN, record
from tests.report.test_documents import held, home  # noqa: F401  (a fixture)

from lading import Ledger, TokenStore
from lading.identity.document_names import NamesWriter
from lading.report import open_run
from lading.report.checkpoint.stamp import stamp


def table(capsys, run: Path, out: Path, *options: object) -> list[dict]:
    """Export a table and read it as somebody without Lading does."""
    code, _, err = call(capsys, "export", run, "--to", out, *options)
    assert code == 0, err
    return duckdb.sql(f"FROM '{out}'").to_arrow_table().to_pylist()


def counted(uses: list[tuple[int, tuple]]) -> dict[tuple, tuple[int, int, int]]:
    """Times, first and last step of each key."""
    times = Counter(key for _, key in uses)
    steps = {key: [step for step, other in uses if other == key] for key in times}
    return {key: (times[key], min(steps[key]), max(steps[key])) for key in times}


@pytest.mark.parametrize("kind", ["digests", "names"])
@pytest.mark.parametrize("until", [None, 0, 41, 1000])
def test_exposures_equal_a_count_over_delivered_bills(capsys, tmp_path, kind, until):
    """Rolled back steps count once; two ranks, a resume, plans and kept names."""
    options = {} if kind == "digests" else {"record": "names"}
    mark = record(tmp_path / "run", range(80), **options)
    record(tmp_path / "run", range(60, 150), world_size=2, loaded={**mark, "step": 60}, **options)
    steps = range(150 if until is None else min(until, 150))
    expected = counted([(step, (s.dataset, s.index)) for step in steps for s in PLAN.bill(step).samples])

    rows = table(
        capsys,
        tmp_path / "run",
        tmp_path / "seen.parquet",
        *("--table", "exposures"),
        *(() if until is None else ("--until", until)),
    )

    found = {(r["dataset"], r["index"]): (r["times"], r["first_step"], r["last_step"]) for r in rows}
    assert found == expected and len(rows) == len(expected)
    assert all((r["first_update"], r["last_update"]) == (r["first_step"], r["last_step"]) for r in rows)
    assert [(r["dataset"], r["index"]) for r in rows] == sorted(expected)
    assert {r["name"] for r in rows} <= {"code", "prose"}


def test_documents_equal_a_count_over_delivered_tokens(capsys, home):  # noqa: F811
    """Each row that held a part of it is a use; updates are those that were committed; names are there."""
    store = TokenStore(home / "web")
    rows = table(capsys, home / "runs" / "packed", home / "seen.parquet", "--table", "documents", "--until", 17)

    uses = [(step, d) for step, held_ in enumerate(held(home, "packed")[:17]) for row in held_ for d in row]
    assert {r["document"]: (r["times"], r["first_step"], r["last_step"]) for r in rows} == counted(uses)
    assert all(r["id"] == store.name(r["document"]) for r in rows)
    assert all((r["first_update"], r["last_update"]) == (r["first_step"] // 2, r["last_step"] // 2) for r in rows)
    plain = table(capsys, home / "runs" / "plain", home / "plain.parquet", "--table", "documents")
    assert {r["document"]: r["times"] for r in plain} == dict.fromkeys(range(9), 2)
    exposed = table(capsys, home / "runs" / "plain", home / "exposed.parquet", "--table", "exposures")
    assert [r["id"] for r in exposed] == [r["id"] for r in plain] == [f"{home / 'books.parquet'}#{n}" for n in range(9)]


def test_tables_without_their_store(capsys, home):  # noqa: F811
    """Samples are counted without names; documents of rows that nobody can read are refused, with the way out."""
    run = home / "runs" / "packed"
    (home / "web").rename(home / "moved")

    code, _, err = call(capsys, "export", run, "--to", home / "a.csv", "--table", "documents")
    assert code == 2 and "--store packed=PATH" in err and not (home / "a.csv").exists()
    code, _, err = call(capsys, "export", run, "--to", home / "b.csv", "--table", "exposures")
    assert code == 0 and "--store packed=PATH" in err
    assert {row["times"] for row in csv.DictReader((home / "b.csv").read_text().splitlines())} == {"2"}
    pointed = ("--store", f"packed={home / 'moved'}")
    assert call(capsys, "export", run, "--to", home / "a.csv", "--table", "documents", *pointed)[0] == 0


def test_an_empty_table_is_a_table(capsys, tmp_path):
    """Before the first step nothing was seen, and the file says so."""
    record(tmp_path / "run", range(3))

    for name in ("history", "samples", "exposures", "documents"):
        out = tmp_path / f"{name}.parquet"
        assert call(capsys, "export", tmp_path / "run", "--to", out, "--table", name, "--until", 0)[0] == 0
        assert pq.read_table(out).num_rows == 0
    assert call(capsys, "export", tmp_path / "run", "--to", tmp_path / "a.csv", "--table", "mix", "--until", 3)[0] == 2


@pytest.mark.parametrize("kind", ["digest", "names"])
def test_tables_up_to_a_checkpoint_hold_what_it_had_seen(capsys, tmp_path, kind):
    """Neither what came later, nor what another line of the run did at the same steps."""
    plan = plan_of(3)
    Ledger(tmp_path / "run", plan, record=kind).close()
    state = trained(tmp_path / "run", tmp_path / "first", range(3), plan=plan)
    trained(tmp_path / "run", tmp_path / "second", range(3, 8), plan=plan, loaded=state)
    trained(tmp_path / "run", tmp_path / "third", range(3, 4), plan=plan, loaded=state)

    for name, steps in (("first", range(3)), ("second", range(8)), ("third", range(4))):
        asked = ("--table", "exposures", "--until", tmp_path / name)
        rows = table(capsys, tmp_path / "run", tmp_path / f"{name}.parquet", *asked)
        assert {(r["index"], r["times"]) for r in rows} == {(i, 1) for i in held_by(plan, steps)}
        assert max(r["last_step"] for r in rows) == steps[-1]
    trained(tmp_path / "other", tmp_path / "foreign", range(3), plan=plan)
    code, _, err = call(capsys, "export", tmp_path / "run", "--to", tmp_path / "a.csv", "--until", tmp_path / "foreign")
    assert code == 2 and "Give a checkpoint of it" in err


def test_names_that_were_replaced_since_a_checkpoint_are_left_out(capsys, home):  # noqa: F811
    """The waybill knows which names its run had; others are not told as if they were those."""
    run, out = home / "runs" / "packed", home / "seen.parquet"
    (home / "model.bin").write_bytes(b"weights")
    waybill = stamp(home / "model.bin", run=run, step=17)
    asked = ("--table", "documents", "--until", home / "model.bin")
    before = table(capsys, run, out, *asked)
    assert waybill.totals["packed"].names and waybill.totals["packed"].tokens > 0
    assert before == table(capsys, run, home / "b.parquet", "--table", "documents", "--until", 17)
    assert all(row["id"] for row in before)

    store = Path(open_run(run).plan.datasets[0].location).parent
    size = len(TokenStore(store))
    with NamesWriter(store, ["other.jsonl"]) as writer:
        writer.add(np.zeros(size, np.int64), np.arange(size), np.zeros(size, np.int64), b"")
    code, _, err = call(capsys, "export", run, "--to", out, *asked)

    assert code == 0 and "are not those of the checkpoint: expected digest" in err
    rows = duckdb.sql(f"FROM '{out}'").to_arrow_table().to_pylist()
    assert [{**row, "id": None} for row in before] == rows


def test_a_question_after_an_export_is_answered(tmp_path):
    """What an export works on does not stay behind."""
    record(tmp_path / "run", range(5))
    run = open_run(tmp_path / "run")

    first = sum(len(batch) for batch in run.rows_of("exposures"))

    assert first == sum(len(batch) for batch in run.rows_of("documents")) == 80
    assert run.sql("SELECT count(*) AS n FROM samples")["n"] == [80]


def test_runs_that_used_a_sample_are_listed(capsys, tmp_path, home):  # noqa: F811
    """Which of a folder's runs, how often, and when first; by sample and by name; 1 where none did."""
    record(home / "runs" / "short", range(4))
    sample = PLAN.bill(2).samples[5]

    code, out, _ = call(
        capsys, "ls", home / "runs", "--has", "code" if sample.dataset == 0 else "prose", sample.index, "--json"
    )
    named, ids, _ = call(capsys, "ls", home / "runs", "--id", "https://example.org/5", "--json")

    rows = {row["run"]: row for row in json.loads(out)}
    assert code == 0 and (rows["short"]["times"], rows["short"]["first_step"]) == (1, 2)
    assert rows["short"]["first_time"] and "no dataset" in rows["packed"]["problem"]
    rows = {row["run"]: row for row in json.loads(ids)}
    used = [s for s, step in enumerate(held(home, "packed")) for row in step if 5 in row]
    assert named == 0 and (rows["packed"]["times"], rows["packed"]["first_step"]) == (len(used), used[0])
    assert rows["plain"]["times"] is rows["short"]["times"] is None  # neither knows the name
    assert "and not this one" in rows["plain"]["problem"] and "has no names" in rows["short"]["problem"]
    assert "used by 1 of 3 runs, unknown of 2" in call(capsys, "ls", home / "runs", "--id", "https://example.org/5")[1]
    assert call(capsys, "ls", home / "runs", "--id", "nothing")[0] == 2
    assert call(capsys, "ls", home / "runs" / "short", "--has", "code", PLAN.bill(50).samples[0].index)[0] == 1
    assert call(capsys, "ls", home / "runs", "--id", "x", "--has", "code", 1)[0] == 2
