"""What the ledger tells: queries, comparison, verification, and pages to read."""

from lading.runtime.lazy import lazy_names

__all__ = ["Run", "Table", "open_run"]

# DuckDB and pyarrow are opened by the first question, not by the import.
__getattr__, __dir__ = lazy_names(
    __name__, {"Run": "lading.report.run", "Table": "lading.report.table", "open_run": "lading.report.run"}
)
