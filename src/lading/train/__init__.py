"""The edge, where loaders and ledgers meet training: any loop, and one file per framework."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
