"""Documents of a packed dataset: which of its rows hold them, and where in the row."""

from __future__ import annotations

from typing import Any

from lading.errors import ConfigError
from lading.order.packing_file import open_index


def rows_of_document(packing: str | None, document: int) -> list[dict[str, Any]]:
    """Return the rows that hold pieces of a document, with their token spans."""
    if packing is None:
        raise ConfigError("--document needs --packing, the folder of the dataset's packing index.")
    pieces = open_index(packing).rows_of_document(document)
    return [{"index": p.row, "tokens": f"{p.start}–{p.start + p.size - 1}", "column": p.column} for p in pieces]
