"""Public helpers to test sources, orders, loaders and models."""

from lading.runtime.lazy import lazy_names

_HOMES = {
    "OrderContract": "lading.testing.contracts",
    "SourceContract": "lading.testing.contracts",
    "assert_isolated": "lading.testing.isolation",
    "assert_resumable": "lading.testing.resumable",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
