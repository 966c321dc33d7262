"""Where samples live: anything with ``__len__`` and ``__getitem__``; what it may offer besides is in ``protocol``."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names
from lading.source.columns import Columns
from lading.source.spec import BatchSpec, Field, validate_batch

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
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
    from lading.source.windows import Windows as Windows

_HOMES = {
    "ByteTokenizer": "lading.source.tokens.tokenizer",
    "PackedRows": "lading.source.tokens.packed",
    "TaggedDataset": "lading.source.tagged",
    "TaggedIterableDataset": "lading.source.stream.torch",
    "TokenColumn": "lading.source.tokens.column",
    "TokenStore": "lading.source.tokens.store",
    "TokenWriter": "lading.source.tokens.write",
    "SequentialWeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatDataset": "lading.source.weighted_concat",
    "WeightedConcatIterableDataset": "lading.source.stream.weighted",
    "Windows": "lading.source.windows",
    "build_tokens": "lading.source.tokens.build",
}

__all__ = ["BatchSpec", "Columns", "Field", "validate_batch", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
