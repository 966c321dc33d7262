"""Tell a logger people already look at what a run is fed: shares, passes, losses, spikes, the plan behind them.

    ledger = logged(Ledger("runs/7"), TensorBoard("runs/7/tensorboard"))
    loader = Loader(sources, batch_size=32, tracker=ledger)
    ledger.commit(bill, loss=loss)          # as before

A sink is three methods (``Sink``); a third logger is a class of twenty lines.
"""

from typing import TYPE_CHECKING

from lading.runtime.lazy import lazy_names
from lading.train.loggers.logged import LoggedLedger, Sink, logged

if TYPE_CHECKING:  # the same names for type checkers; a test compares the two lists
    from lading.train.loggers.lightning import LightningSink as LightningSink
    from lading.train.loggers.tensorboard import TensorBoard as TensorBoard
    from lading.train.loggers.wandb import WandB as WandB

_HOMES = {
    "LightningSink": "lading.train.loggers.lightning",
    "TensorBoard": "lading.train.loggers.tensorboard",
    "WandB": "lading.train.loggers.wandb",
}

__all__ = ["LoggedLedger", "Sink", "logged", *_HOMES]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
