"""The verbs that list and write: ls, spikes, bad, export, compact.

lading ls runs/      lading spikes RUN      lading bad RUN      lading export RUN --to steps.parquet
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.text import Text

from lading.cli.output import Attempt, Json, Run, answer, open_run, progress_bar
from lading.errors import ConfigError
from lading.report import Run as OpenedRun, text as render
from lading.report.export import TABLES, write_rows
from lading.report.folder import glance_at, named_runs
from lading.runtime import compiled
from lading.runtime.arrow import without_pandas
from lading.runtime.paths import local_path

_LS_COLUMNS = {"run": "run", "state": "state", "steps": "steps", "loss": "loss", "wrote": "wrote (UTC)"}


def ls(
    folder: Annotated[str, typer.Argument(help="Folder with runs in it.", metavar="FOLDER")] = ".",
    as_json: Json = False,
) -> None:
    """The runs of a folder: state, steps, loss, digest.

    Example: lading ls runs
    """
    without_pandas()
    compiled.expect(0)
    rows = [{"run": name, **glance_at(path)} for name, path in named_runs([folder]).items()]
    columns = {**_LS_COLUMNS, "digest": "digest"}
    if any(row["problem"] for row in rows):
        columns["problem"] = "problem"
    answer(rows, lambda: render.table(rows, columns, render.counted(len(rows), "run")), as_json=as_json)


def spikes(
    run: Run,
    window: Annotated[int, typer.Option(help="Steps before it to compare with.", min=8)] = 64,
    threshold: Annotated[float, typer.Option(help="How many robust deviations are far.", min=0)] = 6.0,
    limit: Annotated[int, typer.Option(help="List at most so many, the worst first.", min=1)] = 50,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """The steps whose loss stands far above those before them, the worst first.

    Example: lading spikes runs/7 --threshold 10
    """
    found = open_run(run, attempt).spikes(window=window, threshold=threshold).dicts()
    columns = {"step": "step", "update": "update", "loss": "loss", "usual": "usual", "score": "deviations"}
    rest = f", the {limit} worst" if len(found) > limit else ""
    title = f"{render.counted(len(found), 'spike')}{rest}"
    answer(found[:limit], lambda: render.table(found[:limit], columns, title), as_json=as_json)


def bad(run: Run, attempt: Attempt = None, as_json: Json = False) -> None:
    """The samples that could not be used, where, and what came instead.

    Example: lading bad runs/7 --json
    """
    found = open_run(run, attempt).bad().dicts()
    title = render.counted(len(found), "bad sample")
    answer(found, lambda: render.bad(found, title), as_json=as_json)


def export(
    run: Run,
    to: Annotated[
        str, typer.Option("--out", "-o", "--to", help="File to write: .parquet, .csv or .jsonl.", show_default=False)
    ],
    table: Annotated[str, typer.Option(help=f"What to write: {', '.join(TABLES)}.")] = "history",
    by: Annotated[str, typer.Option(help="Of mix: run, epoch, chunk, attempt, or a number of steps.")] = "epoch",
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Write history, samples or the mix of a run to a file.

    Example: lading export runs/7 --to steps.parquet
    """
    opened = open_run(run, attempt, visits=OpenedRun.planned_size)
    rows = write_rows(_batches(opened, table, by), local_path(to))
    found = {"file": to, "table": table, "rows": rows}
    answer(found, lambda: Text(f"{to}: {render.counted(rows, 'row')} of {table}"), as_json=as_json)


def _batches(run: OpenedRun, table: str, by: str) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Return what yields the rows of a table, in batches."""
    if table == "mix":
        mixed: Any = run.mix(int(by) if by.isdigit() else by).arrow
        return lambda: iter(mixed.to_batches())
    if table in TABLES:
        return lambda: run.rows_of(table)
    raise ConfigError(f"--table {table!r}: expected {', '.join(TABLES)}.")


def compact(run: Run, as_json: Json = False) -> None:
    """Seal the tails of dead attempts into Parquet and merge small parts. Exit code 1: damaged files were left alone.

    Example: lading compact runs/7
    """
    from lading.ledger.compact import compact as compact_run  # here: those who only look write no Parquet

    with progress_bar(quiet=as_json) as progress:
        found = compact_run(run, progress)
    text = (
        f"sealed {found.sealed} and merged {found.merged} of {found.ranks} ranks: {found.files_before} Parquet files "
        f"became {found.files_after}"
    )
    running = [f"{found.running} ranks run and were left alone"] if found.running else []
    lines = "\n".join([text, *running, *found.damaged])
    answer(asdict(found), lambda: Text(lines), as_json=as_json, holds=not found.damaged)
