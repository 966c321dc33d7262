"""Training in chunks that cycle through all the data: data modules, audio, the mixin, configurations (document 003)."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
