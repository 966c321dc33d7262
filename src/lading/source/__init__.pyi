from lading.source.columns import Columns as Columns
from lading.source.spec import BatchSpec as BatchSpec, Field as Field, validate_batch as validate_batch
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
    WeightedConcatChatDataset as WeightedConcatChatDataset,
    WeightedConcatDataset as WeightedConcatDataset,
)
from lading.source.windows import Windows as Windows
