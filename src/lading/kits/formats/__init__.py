"""Files that other projects write: MDS, Megatron, nanoGPT, read and converted."""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
