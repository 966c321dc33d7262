"""Other people's DataLoaders: keep their books (``track``), or find what is wrong with them (``audit``)."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.observe.auditing.command import audit as audit
    from lading.observe.stateful import import_stateful as import_stateful
    from lading.observe.tracking import track as track

_HOMES = {
    "audit": "lading.observe.auditing.command",
    "import_stateful": "lading.observe.stateful",
    "track": "lading.observe.tracking",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
