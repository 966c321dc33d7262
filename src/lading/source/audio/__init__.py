"""Audio files as training data: quantization in NumPy, and datasets that read files (torch, opened at first use)."""

from lading.runtime.lazy import lazy_names
from lading.source.audio.quantize import (
    MAX_BITS,
    QUANTIZATIONS,
    dequantize,
    linear_decode,
    linear_encode,
    mu_law_decode,
    mu_law_encode,
    q_zero,
    quantize,
)

_HOMES = {
    "ChunkedQuantizedAudioDataset": "lading.source.audio.torch",
    "QuantizedAudioDataset": "lading.source.audio.torch",
    "collate_audio": "lading.source.audio.torch",
}

__all__ = [
    "MAX_BITS",
    "QUANTIZATIONS",
    "dequantize",
    "linear_decode",
    "linear_encode",
    "mu_law_decode",
    "mu_law_encode",
    "q_zero",
    "quantize",
    *_HOMES,
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
