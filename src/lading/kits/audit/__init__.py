"""Watch a short run of a loader and say what is wrong with it."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
