"""DuckDB over the rows of a run, and over nothing else.

batches   every row any rank recorded in any attempt; what a resume undid is called rolled back, what a second root
          does not continue left behind
history   each step once: applied or skipped by all ranks of the attempt that owns it; twice where it was replayed
samples   the samples of the applied steps of history, by name, with the loss that was committed for the row

    closed parts ──▶ Arrow dataset ─┐
    tails        ──▶ Arrow table   ─┼─▶ DuckDB, without files, network and extensions, its configuration locked
    spans, names ──▶ Arrow tables  ─┘

Whatever a run directory says reaches DuckDB as a table or a parameter, never
as SQL. DuckDB itself opens no file, and a question of the user's is one
SELECT: there is nothing it could write to.
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lading.errors import ConfigError, CorruptLedgerError, LadingError
from lading.ledger.schema import SCHEMAS
from lading.ledger.tables import PENDING_REASON
from lading.report.evidence import Evidence, no_rows
from lading.runtime.fields import INT64_MAX, shown

if TYPE_CHECKING:
    import duckdb

_CONFIG = {
    "memory_limit": "1500MB",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # or a query could read the variables of this process
    "disabled_optimizers": "build_side_probe_side",  # it cannot know which table is large: hashes 10^8 rows, not 10
}
_PARTS = "parts_"
_NO_SAMPLES = "name samples does not exist"
_FEW_ROWS = 2_000_000  # of such a run history is worked out once, not in every query
_OWNED = "r.step >= start AND r.step < stop"
_WAITS = "EXISTS (SELECT 1 FROM pending WHERE pending.attempt = r.attempt AND pending.step = r.step)"

_MARKED = f"""
CREATE TEMP VIEW marked AS
SELECT r.*, world_size, related, {_OWNED} AS owned, {{waits}} AS waits FROM latest AS r JOIN lines USING (attempt)
"""

_BATCHES = f"""
CREATE TEMP VIEW batches AS
SELECT * EXCLUDE (world_size, related, waits) REPLACE (
    CASE WHEN fate = 'applied' AND NOT owned THEN CASE WHEN related THEN 'rolled back' ELSE 'left behind' END
         WHEN owned AND waits THEN 'skipped' ELSE fate END AS fate,
    CASE WHEN owned AND waits THEN '{PENDING_REASON}' ELSE reason END AS reason)
FROM marked
"""

_SETTLED = f"""CASE WHEN waits THEN '{PENDING_REASON}' ELSE reason END"""
_HISTORY = f"""
CREATE {{kind}} history AS
SELECT step, attempt, max(update) AS update, any_value(epoch) AS epoch,
       any_value(chunk) AS chunk, any_value(position) AS position, sum(samples)::BIGINT AS samples,
       {{digest}} AS digest, {{content}} AS content,
       CASE WHEN bool_and(fate = 'applied' AND NOT waits) THEN 'applied' ELSE 'skipped' END AS fate,
       avg(loss)::FLOAT AS loss, max(time) AS time, arg_min(metrics, rank) AS metrics,
       any_value({_SETTLED}) AS reason, count(*)::INT AS ranks
FROM marked
WHERE owned GROUP BY attempt, step
HAVING count(*) = any_value(world_size) AND bool_and(fate <> 'delivered' OR waits)
"""
# The same where every step has one row: nothing need be grouped.
_HISTORY_OF_ONE = f"""
CREATE {{kind}} history AS
SELECT step, attempt, update, epoch, chunk, position, samples::BIGINT AS samples,
       {{digest}} AS digest, {{content}} AS content,
       CASE WHEN fate = 'applied' AND NOT waits THEN 'applied' ELSE 'skipped' END AS fate,
       loss::FLOAT AS loss, time, metrics, {_SETTLED} AS reason, 1::INT AS ranks
FROM marked
WHERE owned AND (fate <> 'delivered' OR waits)
"""


def _history(kind: str, *, grouped: bool) -> str:
    total = "((sum({0}::HUGEINT) % 18446744073709551616 + 18446744073709551616) % 18446744073709551616)::UBIGINT"
    alone = "CASE WHEN {0} < 0 THEN ({0}::HUGEINT + 18446744073709551616)::UBIGINT ELSE {0}::UBIGINT END"
    values = {name: (total if grouped else alone).format(name) for name in ("digest", "content")}
    return (_HISTORY if grouped else _HISTORY_OF_ONE).format(kind=kind, **values)


class NoSamples(ConfigError):
    """A query asks for ``samples``, which are made only then."""


class Views:
    """The views of a run, in a database in memory."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._has_samples = False

    def query(self, sql: str, *parameters: Any) -> pa.Table:
        """Return the rows of one of our own queries as an Arrow table; values are its ``?``."""
        duckdb = _duckdb()
        try:
            relation = self.connection.sql(sql, params=list(parameters))
            return relation.to_arrow_table()
        except duckdb.Error as error:
            raise _refused(error) from error

    def ask(self, sql: str) -> pa.Table:
        """Return the rows of a user's query, which must be one SELECT."""
        duckdb = _duckdb()
        try:
            kinds = [statement.type for statement in self.connection.extract_statements(sql)]
        except duckdb.Error as error:
            raise _refused(error) from error
        if kinds != [duckdb.StatementType.SELECT]:
            found = ", ".join(str(kind).rpartition(".")[2] for kind in kinds) or "nothing"
            raise ConfigError(
                f"expected one SELECT, found {found}: questions only read. Write the answer to a file with "
                "--json or run.sql(...).arrow; give PIVOT its values with IN (...)."
            )
        return self.query(sql)

    def register(self, name: str, table: pa.Table) -> None:
        """Give a table a name that queries can use."""
        self.connection.register(name, table)

    def stream(self, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one of our own queries in batches; they need never be in memory together."""
        duckdb = _duckdb()
        try:
            reader = self.connection.sql(sql).to_arrow_reader(1 << 18)
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)  # a table of no rows has columns, too
            yield from reader
        except (duckdb.Error, OSError, pa.ArrowException) as error:
            raise _refused(error) from error

    def unregister(self, name: str) -> None:
        """Take a name back."""
        self.connection.unregister(name)

    @functools.cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own, with ``batches`` and ``history`` in it, closed to everything else."""
        connection = _database(os.getpid()).cursor()
        self._create_recorded(connection, "batches")
        connection.register("lines", self._lines())
        connection.register("pending", self._pending())
        connection.execute(_MARKED.format(waits=_WAITS if self._evidence.pending else "false"))
        connection.execute(_BATCHES)
        few = sum(file.rows for _, file in self._evidence.files("batches")) <= _FEW_ROWS
        grouped = any(self._evidence.attempts[span.attempt].launch.world_size > 1 for span in self._evidence.spans)
        try:
            connection.execute(_history("TEMP TABLE" if few else "TEMP VIEW", grouped=grouped))
        except _duckdb().Error as error:
            raise _refused(error) from error
        return connection

    def create_samples(self) -> None:
        """Make ``samples`` from the names that were kept."""
        connection = self.connection
        if self._has_samples:
            return
        self._create_recorded(connection, "samples")
        names = self._evidence.datasets
        connection.register(
            "dataset_names",
            pa.table({"dataset": pa.array(range(len(names)), pa.int32()), "name": pa.array(names, pa.string())}),
        )
        connection.execute(
            "CREATE TEMP TABLE left_out AS (SELECT DISTINCT attempt, step FROM batches WHERE owned) "
            "EXCEPT (SELECT attempt, step FROM history WHERE fate = 'applied')"
        )
        some = connection.execute("SELECT count(*) FROM left_out").fetchall()[0][0]
        beyond = " ANTI JOIN left_out USING (attempt, step)" if some else ""
        connection.execute(
            f"CREATE TEMP VIEW used_samples AS SELECT r.* FROM recorded_samples AS r{beyond} "
            f"JOIN lines USING (attempt) WHERE {_OWNED}"
        )
        loss, beside = "NULL::FLOAT", ""
        if self._evidence.has_rows("row_losses"):
            self._create_recorded(connection, "row_losses")
            loss = "CASE WHEN isnan(l.loss) THEN NULL ELSE l.loss END"
            rows = "SELECT attempt, step, slot, loss FROM recorded_row_losses"
            beside = f" LEFT JOIN ({rows}) AS l USING (attempt, step, slot)"
        connection.execute(
            f"CREATE TEMP VIEW samples AS SELECT u.*, n.name, {loss} AS loss FROM used_samples AS u "
            f"LEFT JOIN dataset_names AS n USING (dataset){beside}"
        )
        self._has_samples = True

    def _lines(self) -> pa.Table:
        """Return, of every attempt, its ranks, whether it has the leaf's root, and the steps it owns of history."""
        spans = {span.attempt: span for span in self._evidence.spans}
        rows = []
        for attempt in self._evidence.attempts.values():
            span = spans.get(attempt.number)
            start, stop = (0, 0) if span is None else (span.start, INT64_MAX if span.stop is None else span.stop)
            rows.append((attempt.number, attempt.launch.world_size, start, stop))
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
        related = pa.array([n in self._evidence.related for n in self._evidence.attempts], pa.bool_())
        return _integers(("attempt", "world_size", "start", "stop"), columns).append_column("related", related)

    def _pending(self) -> pa.Table:
        pairs = sorted(self._evidence.pending)
        return _integers(("attempt", "step"), [[a for a, _ in pairs], [s for _, s in pairs]])

    def _create_recorded(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        """Make ``recorded_<table>``: closed parts and tails; of batches also ``latest``, one row each."""
        columns = ", ".join(["attempt", "rank", *SCHEMAS[table].names])
        files = self._evidence.files(table)
        connection.register(f"tails_{table}", self._tails(table))
        if files:
            connection.register(f"parts_{table}", self._parts(table))
        kinds = ("parts", "tails") if files else ("tails",)
        sources = [f"SELECT {columns} FROM {kind}_{table}" for kind in kinds]
        connection.execute(f"CREATE TEMP VIEW recorded_{table} AS {' UNION ALL '.join(sources)}")
        if table == "batches":
            self._create_latest(connection, any(file.undecided for _, file in files))

    def _create_latest(self, connection: duckdb.DuckDBPyConnection, undecided: bool) -> None:
        """Make ``latest``: the rows that ``ledger.schema.latest_rows`` keeps, of more rows than fit in memory."""
        if not undecided and "delivered" not in set(self._tails("batches")["fate"].to_pylist()):
            connection.execute("CREATE TEMP VIEW latest AS FROM recorded_batches")
            return
        connection.execute(
            "CREATE TEMP TABLE undecided AS SELECT DISTINCT ON (attempt, rank, step) * FROM "
            "(FROM recorded_batches WHERE fate = 'delivered') ANTI JOIN "
            "(FROM recorded_batches WHERE fate <> 'delivered') USING (attempt, rank, step)"
        )
        connection.execute(
            "CREATE TEMP VIEW latest AS FROM recorded_batches WHERE fate <> 'delivered' UNION ALL FROM undecided"
        )

    def _parts(self, table: str) -> Any:
        """Return the closed files as one dataset, with the attempt and rank of their folders; page CRCs are checked."""
        files = self._evidence.intact_files(table)
        if sum(file.rows for _, file in files) <= _FEW_ROWS:
            return pa.concat_tables([no_rows(table), *self._evidence.closed(table)])
        import pyarrow.dataset as pads  # here: a small run needs neither
        import pyarrow.fs

        return pads.FileSystemDataset.from_paths(
            [os.path.abspath(rank.folder.path / file.file) for rank, file in files],
            schema=no_rows(table).schema,
            format=pads.ParquetFileFormat(page_checksum_verification=True),
            filesystem=pyarrow.fs.LocalFileSystem(),
            partitions=[
                (pads.field("attempt") == rank.folder.attempt) & (pads.field("rank") == rank.folder.rank)
                for rank, _ in files
            ],
        )

    def _tails(self, table: str) -> pa.Table:
        return pa.concat_tables([no_rows(table), *self._evidence.tails(table)])


@functools.lru_cache(maxsize=1)
def _database(process: int) -> duckdb.DuckDBPyConnection:
    """Open the database of this process: empty, without files, its configuration locked.

    It takes 25 ms, so all runs share it. What a run has in it is temporary and belongs to its own connection: no other
    sees it, and it goes with the run.

    Args:
        process: Whose it is: a process that was forked opens its own.
    """
    spill = os.path.join(tempfile.gettempdir(), f"lading-{secrets.token_hex(8)}")  # made only when needed
    database: duckdb.DuckDBPyConnection = _duckdb().connect(config={**_CONFIG, "temp_directory": spill})
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    database.execute("SET lock_configuration = true")
    atexit.register(_database.cache_clear)  # or DuckDB complains when the interpreter ends
    return database


def _duckdb() -> Any:
    """Open DuckDB when it is first asked: a step or a sample of a planned run needs none."""
    import duckdb

    return duckdb


def _integers(names: tuple[str, ...], columns: list[list[int]]) -> pa.Table:
    return pa.table([pa.array(column, pa.int64()) for column in columns], names=list(names))


def _refused(error: Exception) -> LadingError:
    why = shown(" ".join(str(error).split())).rstrip(".")
    if _PARTS in why:
        return CorruptLedgerError(
            f"the record cannot be read: {why}. Run `lading verify` to see which file is damaged; the others stay "
            "readable."
        )
    kind = NoSamples if isinstance(error, _duckdb().CatalogException) and _NO_SAMPLES in why.lower() else ConfigError
    return kind(f"DuckDB cannot answer this: {why}. The views are batches, history and samples.")
