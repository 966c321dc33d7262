"""What the model receives: frozen batches of arrays, the same on NumPy, torch and JAX.

    documents ─▶ pack ─▶ LLMIndexedBatch ─▶ to_torch / to_jax ─▶ model
                              │
                              └─ batch[:, a:b] · cu_seqlens · get_document_borders · equals

The classes need NumPy only. They are JAX pytrees as soon as JAX is loaded, before Lading or after it.
"""

from lading.batch.pack import pack as pack  # a module has the name, too
from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
