"""What was consumed, in memory: the samples of each dataset, in arrival order."""

from lading.ledger.tracker.tracker import BatchTracker

__all__ = ["BatchTracker"]
