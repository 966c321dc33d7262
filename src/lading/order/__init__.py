"""Which sample comes when: pure functions of a plan and a position, arithmetic on NumPy."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
