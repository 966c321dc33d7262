"""Other people's DataLoaders: keep their books (``track``)."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
