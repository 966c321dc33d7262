"""A trainer on DeepSpeed that keeps the books (document 000)."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
