"""The verbs that list and write: ls, spikes, bad, export, compact, seal.

lading ls runs/      lading spikes RUN      lading bad RUN      lading export RUN --to steps.parquet
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.text import Text

from lading.cli.output import Attempt, Json, Run, Stores, answer, grouped_by, open_run, progress_bar
from lading.errors import ConfigError
from lading.report import Run as OpenedRun, text as render
from lading.report.export import TABLES, write_rows
from lading.report.folder import differing_settings, glance_at, named_runs, use_in
from lading.runtime.arrow import without_pandas
from lading.runtime.paths import local_path

_LS_COLUMNS = {"run": "run", "state": "state", "steps": "steps", "loss": "loss", "wrote": "wrote (UTC)"}


def ls(
    folder: Annotated[str, typer.Argument(help="Folder with runs in it.", metavar="FOLDER")] = ".",
    has: Annotated[
        tuple[str, int] | None, typer.Option("--has", help="Which runs used this sample.", metavar="DATASET INDEX")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="Which runs used the document of this name.")] = None,
    as_json: Json = False,
) -> None:
    """The runs of a folder, the newest first; or which of them used a sample. Exit code 1: none did; 2: not known.

    Of what Ledger(config=...) was given, settings that differ between the runs are shown.

    Example: lading ls runs, or lading ls runs --has code 93412
    """
    without_pandas()
    if has is not None or id_ is not None:
        _list_uses(folder, has, id_, as_json)
        return
    runs = named_runs([folder])
    newest = sorted(runs, key=lambda name: (runs[name] / "run.json").stat().st_mtime, reverse=True)
    rows = [{"run": name, **glance_at(runs[name])} for name in newest]
    rows.sort(key=lambda row: row["wrote"] or row["began"] or "", reverse=True)
    settings = differing_settings(rows)
    shown = [{**row, **{f"config/{name}": row["config"].get(name) for name in settings}} for row in rows]
    columns = {**_LS_COLUMNS, **{f"config/{name}": name for name in settings}, "digest": "digest"}
    if any(row["problem"] for row in rows):
        columns["problem"] = "problem"
    title = render.counted(len(rows), "run") if sys.stdout.isatty() else ""
    answer(rows, lambda: render.table(shown, columns, title, uncut=("run",)), as_json=as_json)


def _list_uses(folder: str, has: tuple[str, int] | None, name: str | None, as_json: bool) -> None:
    if has is not None and name is not None:
        raise ConfigError("--has and --id are two ways to name what is looked for. Give one of them.")
    rows = [{"run": run, **use_in(path, has, name)} for run, path in named_runs([folder]).items()]
    using = sum(bool(row["times"]) for row in rows)
    columns = {"run": "run", "times": "times", "first_step": "first step", "first_time": "first (UTC)"}
    columns |= {"last_step": "last step"} | ({"problem": "problem"} if any(row["problem"] for row in rows) else {})
    what = f"{has[0]}:{has[1]}" if has is not None else name
    unknown = sum(row["times"] is None for row in rows)
    title = f"{what}: used by {using} of {render.counted(len(rows), 'run')}" + f", unknown of {unknown}" * bool(unknown)
    answer(rows, lambda: render.table(rows, columns, title), as_json=as_json)
    if not using:
        raise typer.Exit(2 if unknown else 1)


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
    until: Annotated[
        str | None,
        typer.Option(metavar="STEP|CKPT", help="Only what came before this step, or what this checkpoint had seen."),
    ] = None,
    store: Stores = None,
    attempt: Attempt = None,
    as_json: Json = False,
) -> None:
    """Write history, samples, exposures, documents or the mix of a run to a file.

    Example: lading export runs/7 --to steps.parquet, or lading export runs/7 --table documents --to seen.csv
    """
    opened, step = open_run(run, attempt, stores=store), int(until) if until and until.isdecimal() else None
    opened = opened.at(until) if until and step is None else opened
    rows = write_rows(_batches(opened, table, by, step), local_path(to))
    for why in opened.documents.missing.values():
        print(f"lading: {why}", file=sys.stderr)
    found = {"file": to, "table": table, "rows": rows}
    answer(found, lambda: Text(f"{to}: {render.counted(rows, 'row')} of {table}"), as_json=as_json)


def _batches(run: OpenedRun, table: str, by: str, until: int | None) -> Callable[[], Iterator[pa.RecordBatch]]:
    """Return what yields the rows of a table, in batches."""
    if table == "mix" and until is not None:
        raise ConfigError(
            "--until STEP is for history, samples, exposures and documents, not for mix. Pass --until CKPT."
        )
    if table == "mix":
        mixed: Any = run.mix(grouped_by(by)).arrow
        return lambda: iter(mixed.to_batches())
    if table in TABLES:
        return lambda: run.rows_of(table, until)
    raise ConfigError(f"--table {table!r}: expected {', '.join(TABLES)}.")


def compact(run: Run, as_json: Json = False) -> None:
    """Make Parquet of the tails of dead attempts and merge small parts. Exit code 1: damaged files were left alone.

    Example: lading compact runs/7
    """
    from lading.ledger.compact import compact as compact_run  # here: those who only look write no Parquet

    with progress_bar(quiet=as_json) as progress:
        found = compact_run(run, progress)
    text = (
        f"closed {found.closed} and merged {found.merged} of {found.ranks} ranks: {found.files_before} Parquet files "
        f"became {found.files_after}"
    )
    _tell(found, text, "were left alone", as_json)


def seal(run: Run, as_json: Json = False) -> None:
    """Seal what ended and dead attempts recorded: a head that is kept from then on commits to it.

    Exit code 1: damaged files could not be sealed. Example: lading seal runs/7
    """
    from lading.ledger.seal import seal as seal_run  # here: those who only look write nothing

    found = seal_run(run)
    text = f"sealed {found.ranks} ranks: {found.seal}" if found.seal else "no rank has ended: nothing to seal"
    _tell(found, text, "stay open", as_json)


def _tell(found: Any, text: str, left: str, as_json: bool) -> None:
    """Say what was done, which ranks were left as they are because they run, and what is damaged."""
    running = [f"{found.running} ranks run and {left}"] if found.running else []
    lines = "\n".join([text, *running, *found.damaged])
    answer(asdict(found), lambda: Text(lines), as_json=as_json, holds=not found.damaged)
