"""Ways to fetch ahead in other processes or threads. Both return the same, in the same order.

requests ─▶ Workers: processes, shared memory ─▶ (request, result)     sources that work per sample
requests ─▶ ThreadWorkers ────────────────────▶ (request, result)     sources that release the interpreter's lock
"""

from lading.runtime.imports import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__spec__)
