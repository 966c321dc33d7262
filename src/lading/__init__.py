"""Training data that can be accounted for.

    plan  ─▶  bill  ─▶  loader  ─▶  batch  ─▶  train  ─▶  ledger  ─▶  report
    the       names      reads the    what the   who        what was    what it
    order     of one     samples from model      uses it    consumed    tells us
              step       sources      receives

Order is a pure function, written down before the run (the *plan*). Every batch
comes with its *bill*: its id and the names of what is in it. What training
really consumed is kept in a *ledger* that survives crashes. From these three,
any question has an exact answer, in both directions.

Importing Lading loads neither NumPy nor a framework; a name opens its file
when it is first used.
"""

import os
import warnings

from lading.runtime.imports import lazy_names

if not hasattr(os, "fork"):
    warnings.warn(
        "Lading is made for Linux. Here plans, loaders without worker processes, ledgers and questions should work, as "
        "far as Linux without fork, locks and hard links could show; nobody has run it there.",
        RuntimeWarning,
        stacklevel=2,
    )

__version__ = "0.3.0.dev0"

__getattr__, __dir__, __all__ = lazy_names(__spec__)
__all__ += ["__version__"]
