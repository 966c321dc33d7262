"""What the ledger tells: queries, comparison, verification, and pages to read."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
