"""Audio files as training data: quantization in NumPy, and datasets that read files (torch, opened at first use)."""

from lading.kits.chunked.audio.quantize import quantize as quantize  # a module has the name, too
from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
