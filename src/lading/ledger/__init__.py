"""What was consumed: the tracker in memory, the ledger on disk, the lineage of attempts."""

from lading.ledger.run_folder import LEDGER_VERSION
from lading.runtime.lazy import lazy_names

__all__ = ["BatchTracker", "LEDGER_VERSION", "Ledger"]

# The ledger opens pyarrow, which a program that only tracks in memory need not wait for.
__getattr__, __dir__ = lazy_names(
    __name__, {"BatchTracker": "lading.ledger.tracker.tracker", "Ledger": "lading.ledger.ledger"}
)
