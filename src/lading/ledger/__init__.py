"""What was consumed: the tracker in memory, the ledger on disk, the lineage of attempts."""

from typing import TYPE_CHECKING

from lading.ledger.run_folder import LEDGER_VERSION
from lading.runtime.lazy import lazy_names

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.ledger.ledger import Ledger as Ledger
    from lading.ledger.tracker.tracker import BatchTracker as BatchTracker

__all__ = ["BatchTracker", "LEDGER_VERSION", "Ledger"]

# The ledger opens pyarrow, which a program that only tracks in memory need not wait for.
__getattr__, __dir__ = lazy_names(
    __name__, {"BatchTracker": "lading.ledger.tracker.tracker", "Ledger": "lading.ledger.ledger"}
)
