"""Audio files as training data: quantization in NumPy, and datasets that read files (torch, opened at first use)."""

from typing import TYPE_CHECKING

from lading.kits.chunked.audio.quantize import (
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
from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.kits.chunked.audio.torch import (
        ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
        QuantizedAudioDataset as QuantizedAudioDataset,
        WindowsInOrder as WindowsInOrder,
        collate_audio as collate_audio,
    )

_HOMES = {
    "ChunkedQuantizedAudioDataset": "lading.kits.chunked.audio.torch",
    "QuantizedAudioDataset": "lading.kits.chunked.audio.torch",
    "WindowsInOrder": "lading.kits.chunked.audio.torch",
    "collate_audio": "lading.kits.chunked.audio.torch",
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
