"""DuckDB sees the rows of a run and nothing else; a question only reads."""

from __future__ import annotations

import hashlib
import json
import shutil

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from lading.errors import ConfigError
from lading.ledger import Ledger
from lading.ledger.schema import latest_rows
from lading.order import Plan
from lading.report import open_run, views
from lading.report.views import Views

VARIABLE = pa.table({"x": [1]})


def state_of(folder):
    """Return the content of every file below a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    "query",
    [
        "COPY history TO '{folder}/out.csv'",
        "COPY (SELECT 1) TO '{part}' (FORMAT parquet)",
        "EXPORT DATABASE '{folder}/out'",
        "ATTACH '{folder}/out.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "EXPLAIN ANALYZE COPY history TO '{folder}/out.csv'",
        "CREATE TABLE t AS FROM history",
        "DROP VIEW history",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CALL enable_logging(storage = 'file', storage_path = '{folder}/log')",
        "FROM history; COPY history TO '{folder}/out.csv'",
        "",
    ],
)
def test_a_question_that_would_write_is_refused(rolled_back, tmp_path, query):
    """Only one SELECT is a question; anything else is refused by its kind, and no file changes."""
    part = next(iter(sorted(rolled_back.rglob("*.parquet"))))
    before = state_of(rolled_back)

    with pytest.raises(ConfigError, match="expected one SELECT, found"):
        open_run(rolled_back).sql(query.format(folder=tmp_path, part=part))

    assert state_of(rolled_back) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_text('{file}')",
        "FROM read_csv('{file}')",
        "FROM '{file}'",
        "FROM glob('{folder}/*')",
        "FROM read_blob('{file}')",
        "FROM sniff_csv('{file}')",
        "FROM parquet_metadata('{part}')",
        "FROM read_parquet('{part}')",
        "FROM query('COPY history TO ''{folder}/out''')",
        "FROM enable_logging(storage = 'file', storage_config = {{'path': '{folder}/log'}})",
        "FROM duckdb_secrets()",
        "FROM VARIABLE",
        "SELECT getenv('HOME')",
    ],
)
def test_a_question_reads_no_file_and_no_variable(rolled_back, tmp_path, query):
    """Files of others, the run's own files and the variables of the process are out of reach."""
    secret = tmp_path / "secret.csv"
    secret.write_text("password\n1\n")
    part = next(iter(sorted(rolled_back.rglob("*.parquet"))))

    with pytest.raises(ConfigError, match="DuckDB cannot answer this"):
        open_run(rolled_back).sql(query.format(folder=tmp_path, file=secret, part=part))

    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_what_asks_is_answered(rolled_back):
    """Tables, joins, windows, descriptions and common table expressions all are questions."""
    run = open_run(rolled_back)

    for query in (
        "FROM history",
        "WITH x AS (FROM history) SELECT count(*) FROM x",
        "SUMMARIZE history",
        "DESCRIBE batches",
        "SELECT step, avg(loss) OVER (ORDER BY step ROWS 3 PRECEDING) FROM history",
        "SELECT name, count(*) FROM Samples GROUP BY ALL",
        "PIVOT history ON fate IN ('applied', 'skipped') USING count(*)",
    ):
        assert len(run.sql(query))


def test_an_altered_part_is_not_opened_and_named(rolled_back, tmp_path):
    """Its SHA-256 is looked at first; the other rows are answered."""
    copy = tmp_path / "run"
    shutil.copytree(rolled_back, copy)
    part = next(iter(sorted(copy.rglob("part-*.parquet"))))
    content = bytearray(part.read_bytes())
    content[200] ^= 255
    part.write_bytes(content)

    run = open_run(copy)

    assert 0 < len(run.sql("FROM batches")) < len(open_run(rolled_back).sql("FROM batches"))
    assert part in [damage.file for damage in run.evidence.damage]


def test_a_folder_name_is_a_name_and_no_pattern(rolled_back, tmp_path):
    """Quotes, brackets, stars and hive-like parents in the path of a run mean nothing to DuckDB."""
    strange = tmp_path / "attempt=7" / "it's [1] * ?"
    strange.parent.mkdir()
    shutil.copytree(rolled_back, strange)

    count = "SELECT attempt, count(*) AS n FROM batches GROUP BY attempt ORDER BY attempt"
    assert open_run(strange).sql(count).dicts() == open_run(rolled_back).sql(count).dicts()


_KEY = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 3))


@given(st.dictionaries(_KEY, st.tuples(st.integers(0, 2), st.sampled_from(["applied", "skipped", None]))))
def test_sql_and_arrow_agree_on_the_latest_row_of_a_batch(found):
    """Each batch: so many rows as delivered, then its fate, if it has one."""
    rows = [(*key, "delivered") for key, (times, _) in found.items() for _ in range(times)]
    rows += [(*key, fate) for key, (_, fate) in found.items() if fate is not None]
    names = ["attempt", "rank", "step", "fate"]
    types = [pa.int64(), pa.int64(), pa.int64(), pa.string()]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    table = pa.table([pa.array(column, kind) for column, kind in zip(columns, types, strict=True)], names=names)
    connection = duckdb.connect()
    connection.register("recorded_batches", table)
    Views._create_latest(Views.__new__(Views), connection, True)

    seen = connection.sql("FROM latest").fetchall()

    assert sorted(seen) == sorted(tuple(row.values()) for row in latest_rows(table).to_pylist())


@pytest.mark.parametrize("question", ["used_samples", "samples"])
def test_the_rows_of_a_run_are_never_what_a_join_hashes(tmp_path, monkeypatch, question):
    """DuckDB does not know how many they are: of 10^8 names it made a table that no memory limit allows."""
    monkeypatch.setattr(views, "_FEW_ROWS", 0)  # as a large run is read
    plan = Plan.make({"a": 500, "b": 300}, batch_size=8)
    with Ledger(tmp_path, names=plan.names) as ledger:
        for step in range(50):
            ledger.commit(plan.bill(step))
    asked = open_run(tmp_path).views
    asked.create_samples()
    sql = f"EXPLAIN (FORMAT JSON) SELECT dataset, count(*) FROM {question} GROUP BY dataset"
    found = json.loads(asked.connection.execute(sql).fetchall()[0][1])

    hashed = [json.dumps(join["children"][1]) for join in _joins(found[0])]
    assert hashed and not any('"step"' in side for side in hashed)


def _joins(node):
    yield from (join for child in node["children"] for join in _joins(child))
    if "JOIN" in node["name"]:
        yield node
