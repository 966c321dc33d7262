"""Partitions and their loaders, no trainer's framework: data modules, the sizes rule, the configuration."""

from typing import TYPE_CHECKING

from lading.datamodule.component import Component
from lading.datamodule.sizes import ChunkSizes, chunk_sizes
from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.datamodule.audio import (
        ChunkedQuantizedAutoregressiveAudio as ChunkedQuantizedAutoregressiveAudio,
        QuantizedAutoregressiveAudio as QuantizedAutoregressiveAudio,
    )
    from lading.datamodule.chunked import ChunkedSequenceDataset as ChunkedSequenceDataset
    from lading.datamodule.config import Config as Config, read_config as read_config
    from lading.datamodule.sequence import SequenceDataset as SequenceDataset

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
