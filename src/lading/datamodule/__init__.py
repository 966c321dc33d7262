"""Partitions and their loaders, no trainer's framework: data modules, the sizes rule, the configuration."""

from lading.datamodule.config import Component
from lading.datamodule.sizes import ChunkSizes, chunk_sizes
from lading.runtime.lazy import lazy_names

__all__ = [
    "ChunkSizes",
    "ChunkedQuantizedAutoregressiveAudio",
    "ChunkedSequenceDataset",
    "Component",
    "Config",
    "QuantizedAutoregressiveAudio",
    "SequenceDataset",
    "chunk_sizes",
    "read_config",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ChunkedQuantizedAutoregressiveAudio": "lading.datamodule.audio",
        "ChunkedSequenceDataset": "lading.datamodule.chunked",
        "Config": "lading.datamodule.config",
        "QuantizedAutoregressiveAudio": "lading.datamodule.audio",
        "SequenceDataset": "lading.datamodule.sequence",
        "read_config": "lading.datamodule.config",
    },
)
