"""``lading where RUN code 93412``: every step that used a sample."""

from __future__ import annotations

from typing import Annotated

import typer

from lading.cli.output import Json, Run, answer
from lading.errors import ConfigError
from lading.report import open_run, render

_COLUMNS = {
    "step": "step",
    "epoch": "epoch",
    "slot": "slot",
    "rank": "rank",
    "attempt": "attempt",
    "fate": "fate",
    "note": "note",
}


def where(
    run: Run,
    dataset: Annotated[str, typer.Argument(help="Name or number of the dataset.", show_default=False)],
    index: Annotated[int | None, typer.Argument(help="Index of the sample.", show_default=False)] = None,
    document: Annotated[int | None, typer.Option(help="A document of a packed dataset instead of a row.")] = None,
    packing: Annotated[str | None, typer.Option(help="Packing index of that dataset, for --document.")] = None,
    until: Annotated[int | None, typer.Option(help="Also where the plan will use it, up to this step.")] = None,
    as_json: Json = False,
) -> None:
    """Every step that used a sample. Exit code 1: none did."""
    opened = open_run(run)
    if document is not None:
        from lading.cli.documents import rows_of_document  # only packed datasets need it

        spans = rows_of_document(opened, dataset, packing, document)
        found = [{**row, **span} for span in spans for row in opened.where(dataset, span["index"], until=until)]
        columns = {"index": "row", "tokens": "tokens", **_COLUMNS}
    elif index is not None:
        found, columns = opened.where(dataset, index, until=until).dicts(), _COLUMNS
    else:
        raise ConfigError("which sample? Expected an INDEX, or --document with --packing.")
    if not any(row["note"] for row in found):
        columns = {key: heading for key, heading in columns.items() if key != "note"}
    what = f"{dataset}:{index}" if document is None else f"document {document} of {dataset}"
    title = f"{what}: {sum(row['fate'] == 'applied' for row in found)} times used"
    answer(found, lambda: render.table(found, columns, title), as_json=as_json, holds=bool(found))
