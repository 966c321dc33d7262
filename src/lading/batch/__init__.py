"""What the model receives: frozen batches of arrays, the same on NumPy, torch and JAX.

    documents ─▶ pack ─▶ LLMIndexedBatch ─▶ to_torch / to_jax ─▶ model
                              │
                              └─ batch[:, a:b] · cu_seqlens · get_document_borders · equals

The classes need NumPy only. They are JAX pytrees as soon as JAX is loaded, before Lading or after it.
"""

from typing import TYPE_CHECKING

from lading.batch.batch import Batch
from lading.batch.collate import collate_llm, llm_batch
from lading.batch.convert import to_numpy
from lading.batch.llm import LLMBatch, LLMIndexedBatch, cu_seqlens, max_seqlen, segment_by_eod
from lading.batch.pack import pack, pad_rows
from lading.batch.pytree import dataclass_kwonly
from lading.batch.rolling import rolling_windows
from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.batch.jax import to_jax as to_jax
    from lading.batch.torch import to_torch as to_torch

__all__ = [
    "Batch",
    "LLMBatch",
    "LLMIndexedBatch",
    "collate_llm",
    "cu_seqlens",
    "dataclass_kwonly",
    "llm_batch",
    "max_seqlen",
    "pack",
    "pad_rows",
    "rolling_windows",
    "segment_by_eod",
    "to_jax",
    "to_numpy",
    "to_torch",
]

__getattr__, __dir__ = lazy_names(__name__, {"to_torch": "lading.batch.torch", "to_jax": "lading.batch.jax"})
