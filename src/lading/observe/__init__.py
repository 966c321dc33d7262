"""Other people's DataLoaders: keep their books (``track``), or find what is wrong with them (``audit``)."""

from lading.runtime.lazy import lazy_names

_HOMES = {
    "audit": "lading.observe.auditing.command",
    "track": "lading.observe.tracking",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
