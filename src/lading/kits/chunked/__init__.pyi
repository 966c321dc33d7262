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
