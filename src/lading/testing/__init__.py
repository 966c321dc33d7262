"""Public helpers to test sources, orders, loaders and models."""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.testing.contracts import OrderContract as OrderContract, SourceContract as SourceContract
    from lading.testing.isolation import assert_isolated as assert_isolated
    from lading.testing.resumable import assert_resumable as assert_resumable

_HOMES = {
    "OrderContract": "lading.testing.contracts",
    "SourceContract": "lading.testing.contracts",
    "assert_isolated": "lading.testing.isolation",
    "assert_resumable": "lading.testing.resumable",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
