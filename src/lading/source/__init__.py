"""Where samples live: anything with ``__len__`` and ``__getitem__``; what it may offer besides is in ``protocol``."""

from lading.identity.lazy import lazy_names
from lading.source.columns import Columns
from lading.source.spec import BatchSpec, Field, validate_batch

_HOMES = {
    "ByteTokenizer": "lading.source.tokenizer",
    "ChunkedQuantizedAudioDataset": "lading.source.audio",
    "JASPERBuilder": "lading.source.jasper_builder",
    "JASPERSteeringDataset": "lading.source.jasper",
    "PackedRows": "lading.source.packed",
    "QuantizedAudioDataset": "lading.source.audio",
    "TaggedDataset": "lading.source.tagged",
    "TaggedIterableDataset": "lading.source.torch_stream",
    "TokenColumn": "lading.source.tokens_column",
    "TokenStore": "lading.source.tokens",
    "TokenWriter": "lading.source.tokens_build",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "build_jasper_dataset": "lading.source.jasper_builder",
    "build_tokens": "lading.source.tokens_build",
}

__all__ = ["BatchSpec", "Columns", "Field", "validate_batch", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
