from lading.kits.chunked.audio.quantize import (
    MAX_BITS as MAX_BITS,
    QUANTIZATIONS as QUANTIZATIONS,
    dequantize as dequantize,
    linear_decode as linear_decode,
    linear_encode as linear_encode,
    mu_law_decode as mu_law_decode,
    mu_law_encode as mu_law_encode,
    q_zero as q_zero,
    quantize as quantize,
)
from lading.kits.chunked.audio.torch import (
    ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
    QuantizedAudioDataset as QuantizedAudioDataset,
    WindowsInOrder as WindowsInOrder,
    collate_audio as collate_audio,
)
