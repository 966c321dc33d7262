"""Ways to fetch ahead in other processes or threads. Both return the same, in the same order.

requests ─▶ Workers: processes, shared memory ─▶ (request, result)     sources that work per sample
requests ─▶ ThreadWorkers ────────────────────▶ (request, result)     sources that release the interpreter's lock
"""

from lading.loader.workers.processes import Workers
from lading.loader.workers.threads import ThreadWorkers

__all__ = ["ThreadWorkers", "Workers"]
