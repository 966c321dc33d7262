"""What was consumed: the tracker in memory, the ledger on disk, the lineage of attempts."""

from lading.identity.lazy import lazy_names
from lading.ledger.layout import LEDGER_VERSION

__all__ = ["BatchTracker", "LEDGER_VERSION", "Ledger"]

# The ledger opens pyarrow, which a program that only tracks in memory need not wait for.
__getattr__, __dir__ = lazy_names(__name__, {"BatchTracker": "lading.ledger.tracker", "Ledger": "lading.ledger.ledger"})
