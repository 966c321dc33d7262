"""Lading in Lightning: the books of any ``Trainer`` (``ledger``), and loaders it leaves alone (``plain``).

    record = LedgerCallback("runs/7")
    Trainer(max_epochs=4, callbacks=[record]).fit(model, lading.Loader(sources, batch_size=32))

Runs cut into chunks are in ``lading.kits.chunked.lightning``.
"""

from __future__ import annotations

from lading.errors import missing_extra

try:
    import lightning.pytorch  # noqa: F401 (opened here first, so that its absence is one line)
except ModuleNotFoundError as error:
    raise missing_extra("lightning", "lightning", "lading.train.lightning") from error

from lading.train.lightning.ledger import LedgerCallback
from lading.train.lightning.plain import PlainLoader, plain

__all__ = ["LedgerCallback", "PlainLoader", "plain"]
