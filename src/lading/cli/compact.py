"""``lading compact``: make Parquet of what dead attempts left, and few files of many.

lading compact runs/7
"""

from __future__ import annotations

from dataclasses import asdict

from rich.text import Text

from lading.cli.output import Json, Run, answer, progress_bar
from lading.ledger.compact import Compaction, compact as compact_run


def compact(run: Run, as_json: Json = False) -> None:
    """Seal the tails of dead attempts into Parquet and merge small parts. Exit code 1: damaged files were left alone.

    Example: lading compact runs/7
    """
    with progress_bar(quiet=as_json) as progress:
        found = compact_run(run, progress)
    answer(asdict(found), lambda: Text(_sentences(found)), as_json=as_json, holds=not found.damaged)


def _sentences(found: Compaction) -> str:
    lines = [
        f"sealed {found.sealed} and merged {found.merged} of {found.ranks} ranks: {found.files_before} Parquet files "
        f"became {found.files_after}"
    ]
    if found.running:
        lines.append(f"{found.running} ranks run and were left alone")
    return "\n".join([*lines, *found.damaged])
