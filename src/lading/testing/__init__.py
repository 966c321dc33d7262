"""Public helpers to test sources, orders, loaders and models."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
