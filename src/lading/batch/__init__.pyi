from lading.batch.batch import Batch as Batch, to_numpy as to_numpy
from lading.batch.jax import to_jax as to_jax
from lading.batch.llm import (
    LLMBatch as LLMBatch,
    LLMIndexedBatch as LLMIndexedBatch,
    collate_llm as collate_llm,
    cu_seqlens as cu_seqlens,
    llm_batch as llm_batch,
    max_seqlen as max_seqlen,
    segment_by_eod as segment_by_eod,
)
from lading.batch.pack import pack as pack, pad_rows as pad_rows
from lading.batch.pytree import dataclass_kwonly as dataclass_kwonly
from lading.batch.rolling import rolling_windows as rolling_windows
from lading.batch.torch import to_torch as to_torch
