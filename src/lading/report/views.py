"""DuckDB over the files where they lie.

batches   every row any rank recorded in any attempt; what was undone is called rolled back
history   each step once: applied or skipped by all ranks of the attempt that owns it
samples   the samples of the applied steps of history, by name
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

from lading.errors import ConfigError
from lading.ledger.schema import SCHEMAS
from lading.report.evidence import Evidence

_MEMORY = "1500MB"

_HISTORY = """
CREATE VIEW history AS
SELECT step, any_value(attempt) AS attempt, max(update) AS update, any_value(epoch) AS epoch,
       any_value(chunk) AS chunk, any_value(position) AS position, sum(samples)::BIGINT AS samples,
       ((sum(digest::HUGEINT) % 18446744073709551616 + 18446744073709551616) % 18446744073709551616)::UBIGINT AS digest,
       ((sum(content::HUGEINT) % 18446744073709551616 + 18446744073709551616) % 18446744073709551616)::UBIGINT
           AS content,
       CASE WHEN bool_and(fate = 'applied') THEN 'applied' ELSE 'skipped' END AS fate,
       avg(loss)::FLOAT AS loss, max(time) AS time, arg_min(metrics, rank) AS metrics,
       any_value(reason) AS reason, count(*)::INT AS ranks
FROM batches JOIN worlds USING (attempt)
WHERE owned GROUP BY step
HAVING count(*) = any_value(world_size) AND bool_and(fate <> 'delivered')
"""


class Views:
    """The views of a run, in a database of their own in memory.

    Args:
        evidence: The run.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query as an Arrow table."""
        return self._run(self.connection, sql)

    def register(self, name: str, table: pa.Table) -> None:
        """Give a table a name that queries can use."""
        self.connection.register(name, table)

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in batches; they need never be in memory together."""
        yield from self.connection.sql(sql).to_arrow_reader(1 << 18)

    def unregister(self, name: str) -> None:
        """Take a name back."""
        self.connection.unregister(name)

    @functools.cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The database, with ``batches`` and ``history`` in it."""
        connection = duckdb.connect(config={"memory_limit": _MEMORY, "autoinstall_known_extensions": "false"})
        connection.execute("SET TimeZone = 'UTC'")
        self._create_recorded(connection, "batches")
        owned = self.owned_sql()
        connection.execute(
            f"CREATE VIEW batches AS SELECT * REPLACE (CASE WHEN fate = 'applied' AND NOT {owned} THEN 'rolled back' "
            f"ELSE fate END AS fate), {owned} AS owned FROM latest"
        )
        worlds = ", ".join(f"({a.number}, {a.launch.world_size})" for a in self._evidence.attempts.values())
        connection.execute(f"CREATE VIEW worlds AS FROM (VALUES {worlds or '(-1, 1)'}) AS w(attempt, world_size)")
        connection.execute(_HISTORY)
        return connection

    def create_samples(self) -> None:
        """Make ``samples`` from the names that were kept."""
        connection = self.connection
        if "recorded_samples" not in self._names():
            self._create_recorded(connection, "samples")
            names = ", ".join(_quoted(name) for name in self._evidence.description.datasets)
            connection.execute(
                "CREATE TEMP TABLE left_out AS (SELECT DISTINCT step FROM batches WHERE owned) "
                "EXCEPT (SELECT step FROM history WHERE fate = 'applied')"
            )
            some = connection.execute("SELECT count(*) FROM left_out").fetchall()[0][0]
            beyond = " AND step NOT IN (SELECT step FROM left_out)" if some else ""
            connection.execute(
                f"CREATE VIEW samples AS SELECT *, [{names}][dataset + 1] AS name FROM recorded_samples "
                f"WHERE {self.owned_sql()}{beyond}"
            )

    def owned_sql(self) -> str:
        """Return the condition that a row's attempt owns its step."""
        spans = [
            f"(attempt = {s.attempt} AND step >= {s.start}{'' if s.stop is None else f' AND step < {s.stop}'})"
            for s in self._evidence.spans
        ]
        return f"({' OR '.join(spans) or 'false'})"

    def _names(self) -> set[str]:
        return {
            row[0] for row in self.connection.execute("SELECT table_name FROM information_schema.tables").fetchall()
        }

    def _create_recorded(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        """Make ``recorded_<table>``: closed parts and tails; of batches also ``latest``, one row each."""
        columns = ", ".join(["attempt", "rank", *SCHEMAS[table].names])
        connection.register(f"tails_{table}", self._tails(table))
        sources = [f"SELECT {columns} FROM tails_{table}"]
        files = self._evidence.files(table)
        if files:
            paths = ", ".join(_quoted(str(rank.folder.path / file.file)) for rank, file in files)
            sources.insert(
                0,
                f"SELECT {columns} FROM read_parquet([{paths}], hive_partitioning = true, "
                "hive_types = {'attempt': INT, 'rank': INT})",
            )
        connection.execute(f"CREATE VIEW recorded_{table} AS {' UNION ALL '.join(sources)}")
        if table == "batches":
            self._create_latest(connection, any(file.undecided for _, file in files))

    def _create_latest(self, connection: duckdb.DuckDBPyConnection, undecided: bool) -> None:
        """Make ``latest``: where a batch was first written as delivered and settled later, only the later row."""
        if not undecided and "delivered" not in set(self._tails("batches")["fate"].to_pylist()):
            connection.execute("CREATE VIEW latest AS FROM recorded_batches")
            return
        connection.execute(
            "CREATE TEMP TABLE undecided AS SELECT DISTINCT ON (attempt, rank, step) * FROM "
            "(FROM recorded_batches WHERE fate = 'delivered') ANTI JOIN "
            "(FROM recorded_batches WHERE fate <> 'delivered') USING (attempt, rank, step)"
        )
        connection.execute(
            "CREATE VIEW latest AS FROM recorded_batches WHERE fate <> 'delivered' UNION ALL FROM undecided"
        )

    def _tails(self, table: str) -> pa.Table:
        origin = pa.schema([("attempt", pa.int32()), ("rank", pa.int32()), *SCHEMAS[table]])
        tables = [origin.empty_table()]
        for attempt in self._evidence.attempts.values():
            for rank in attempt.ranks:
                rows = rank.tail_table(table)
                if len(rows):
                    values = (rank.folder.attempt, rank.folder.rank)
                    first = [pa.repeat(pa.scalar(value, pa.int32()), len(rows)) for value in values]
                    tables.append(pa.Table.from_arrays([*first, *rows.columns], schema=origin))
        return pa.concat_tables(tables)

    def _run(self, connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
        try:
            relation = connection.sql(sql)
            return pa.table({}) if relation is None else relation.to_arrow_table()
        except duckdb.Error as error:
            why = " ".join(str(error).split()).rstrip(".")
            raise ConfigError(
                f"DuckDB cannot answer this: {why}. The views are batches, history and samples."
            ) from error


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
