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

from lading.runtime.lazy import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__spec__)
__all__ += ["__version__"]
