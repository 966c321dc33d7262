"""Where samples live: anything with ``__len__`` and ``__getitem__``; what it may offer besides is in ``protocol``."""

from lading.runtime.lazy import lazy_names
from lading.source.columns import Columns
from lading.source.spec import BatchSpec, Field, validate_batch

_HOMES = {
    "ByteTokenizer": "lading.source.tokens.tokenizer",
    "ChunkedQuantizedAudioDataset": "lading.source.audio.torch",
    "JASPERBuilder": "lading.source.jasper.build.builder",
    "JASPERSteeringDataset": "lading.source.jasper.dataset",
    "PackedRows": "lading.source.tokens.packed",
    "QuantizedAudioDataset": "lading.source.audio.torch",
    "TaggedDataset": "lading.source.tagged",
    "TaggedIterableDataset": "lading.source.stream.torch",
    "TokenColumn": "lading.source.tokens.column",
    "TokenStore": "lading.source.tokens.store",
    "TokenWriter": "lading.source.tokens.build",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "build_jasper_dataset": "lading.source.jasper.build.builder",
    "build_tokens": "lading.source.tokens.build",
}

__all__ = ["BatchSpec", "Columns", "Field", "validate_batch", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
