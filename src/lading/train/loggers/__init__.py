"""Tell a logger people already look at what a run is fed: shares, passes, losses, spikes, the plan behind them.

    ledger = logged(Ledger("runs/7"), TensorBoard("runs/7/tensorboard"))
    loader = Loader(sources, batch_size=32, tracker=ledger)
    ledger.commit(bill, loss=loss)          # as before

A sink is three methods (``Sink``); a third logger is a class of twenty lines.
"""

from lading.runtime.imports import lazy_names
from lading.train.loggers.logged import logged as logged  # a module has the name, too

__getattr__, __dir__, __all__ = lazy_names(__spec__)
