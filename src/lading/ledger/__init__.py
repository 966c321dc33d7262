"""What was consumed: the tracker in memory, the ledger on disk, the lineage of attempts."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
