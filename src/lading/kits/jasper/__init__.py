"""JASPER directories as training data: dataset, builder, loader and verbs (document 002)."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
