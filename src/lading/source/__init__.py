"""Where samples live: anything with ``__len__`` and ``__getitem__``; what it may offer besides is in ``protocol``."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names
from lading.source.columns import Columns
from lading.source.spec import BatchSpec, Field, validate_batch

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.source.audio.torch import (
        ChunkedQuantizedAudioDataset as ChunkedQuantizedAudioDataset,
        QuantizedAudioDataset as QuantizedAudioDataset,
    )
    from lading.source.jasper.build.builder import (
        JASPERBuilder as JASPERBuilder,
        build_jasper_dataset as build_jasper_dataset,
    )
    from lading.source.jasper.build.refresh import build_steering as build_steering, mine_negatives as mine_negatives
    from lading.source.jasper.dataset import JASPERSteeringDataset as JASPERSteeringDataset
    from lading.source.stream.torch import TaggedIterableDataset as TaggedIterableDataset
    from lading.source.stream.weighted import WeightedConcatIterableDataset as WeightedConcatIterableDataset
    from lading.source.tagged import TaggedDataset as TaggedDataset
    from lading.source.tokens.build import build_tokens as build_tokens
    from lading.source.tokens.column import TokenColumn as TokenColumn
    from lading.source.tokens.packed import PackedRows as PackedRows
    from lading.source.tokens.store import TokenStore as TokenStore
    from lading.source.tokens.tokenizer import ByteTokenizer as ByteTokenizer
    from lading.source.tokens.write import TokenWriter as TokenWriter
    from lading.source.weighted_concat import (
        SequentialWeightedConcatDataset as SequentialWeightedConcatDataset,
        WeightedConcatDataset as WeightedConcatDataset,
    )

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
    "TokenWriter": "lading.source.tokens.write",
    "SequentialWeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatIterableDataset": "lading.source.stream.weighted",
    "build_jasper_dataset": "lading.source.jasper.build.builder",
    "build_steering": "lading.source.jasper.build.refresh",
    "build_tokens": "lading.source.tokens.build",
    "mine_negatives": "lading.source.jasper.build.refresh",
}

__all__ = ["BatchSpec", "Columns", "Field", "validate_batch", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
