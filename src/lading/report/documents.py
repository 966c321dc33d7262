"""Which rows of a packed dataset hold a document: through the packing index that the run was made with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lading.errors import ConfigError
from lading.order.packing.file import open_index
from lading.order.packing.index import PackingIndex
from lading.report.run import Run


def rows_of_document(run: Run, dataset: str | int, packing: str | None, document: int) -> list[dict[str, Any]]:
    """Return the rows that hold any part of a document: ``index`` (the row), ``tokens`` (the span), ``column``.

    Args:
        run: The run that is asked about.
        dataset: Name or number of the packed dataset.
        packing: Directory of its packing index; None: where the run's plan says it lies.
        document: Number of the document, from 0.
    """
    index = _index(run, dataset, packing)
    return [
        {"index": piece.row, "column": piece.column, "tokens": f"{piece.start}–{piece.start + piece.size - 1}"}
        for piece in index.rows_of_document(document)
    ]


def _index(run: Run, dataset: str | int, packing: str | None) -> PackingIndex:
    if run.plan is None:
        raise ConfigError("the run has no plan, so its rows cannot be predicted. Ask for the document's index instead.")
    known = run.plan.datasets[run.plan.parts.source(run.number_of(dataset))]
    place = packing or known.location
    if place is None or not Path(place).exists():
        found = "was not packed, or its index was not saved" if place is None else f"had its packing index at {place}"
        raise ConfigError(
            f"dataset {known.name!r} {found}: expected a packing index. Pass --packing with the directory "
            "packing-… beside its tokens."
        )
    index = open_index(place)
    if len(index) != known.length:
        raise ConfigError(
            f"the packing index at {place} has {len(index)} rows, the run's dataset {known.name!r} has {known.length}. "
            "Pass the index that the run was made with."
        )
    return index
