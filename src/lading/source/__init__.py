"""Where samples live: anything with ``__len__`` and ``__getitem__``; what it may offer besides is in ``protocol``."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
