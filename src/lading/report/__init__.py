"""What the ledger tells: queries, comparison, verification, and pages to read."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.report.run import Run as Run, open_run as open_run
    from lading.report.table import Table as Table

__all__ = ["Run", "Table", "open_run"]

# DuckDB and pyarrow are opened by the first question, not by the import.
__getattr__, __dir__ = lazy_names(
    __name__, {"Run": "lading.report.run", "Table": "lading.report.table", "open_run": "lading.report.run"}
)
