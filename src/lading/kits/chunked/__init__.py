"""Training in chunks that cycle through all the data: data modules, audio, the mixin, configurations (document 003)."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.kits.chunked.audio.torch import (
        ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
        QuantizedAudioDataset as QuantizedAudioDataset,
    )
    from lading.kits.chunked.component import Component as Component
    from lading.kits.chunked.config import Config as Config, read_config as read_config
    from lading.kits.chunked.datamodule.audio import (
        ChunkedQuantizedAutoregressiveAudio as ChunkedQuantizedAutoregressiveAudio,
        QuantizedAutoregressiveAudio as QuantizedAutoregressiveAudio,
    )
    from lading.kits.chunked.datamodule.chunked import ChunkedSequenceDataset as ChunkedSequenceDataset
    from lading.kits.chunked.datamodule.sequence import SequenceDataset as SequenceDataset
    from lading.kits.chunked.datamodule.sizes import ChunkSizes as ChunkSizes, chunk_sizes as chunk_sizes
    from lading.kits.chunked.mixin import ChunkedTrainingMixin as ChunkedTrainingMixin

_HOMES = {
    "ChunkSizes": "lading.kits.chunked.datamodule.sizes",
    "ChunkedQuantizedAudioDataset": "lading.kits.chunked.audio.torch",
    "ChunkedQuantizedAutoregressiveAudio": "lading.kits.chunked.datamodule.audio",
    "ChunkedSequenceDataset": "lading.kits.chunked.datamodule.chunked",
    "ChunkedTrainingMixin": "lading.kits.chunked.mixin",
    "Component": "lading.kits.chunked.component",
    "Config": "lading.kits.chunked.config",
    "QuantizedAudioDataset": "lading.kits.chunked.audio.torch",
    "QuantizedAutoregressiveAudio": "lading.kits.chunked.datamodule.audio",
    "SequenceDataset": "lading.kits.chunked.datamodule.sequence",
    "chunk_sizes": "lading.kits.chunked.datamodule.sizes",
    "read_config": "lading.kits.chunked.config",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
