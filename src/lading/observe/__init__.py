"""Other people's DataLoaders: keep their books (``track``), or find what is wrong with them (``audit``)."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
