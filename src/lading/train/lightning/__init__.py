"""Lading in Lightning: an ordinary ``Trainer``, an ordinary ``LightningModule``.

    data   = ChunkedSequenceDataset(train, val, train_chunk_size=2000, loader={"batch_size": 32})
    record = LedgerCallback("runs/7")
    Trainer(max_epochs=40, callbacks=[record]).fit(model, datamodule=data)

One chunk is one epoch of the trainer, so validation follows each chunk. The
rooms behind this door: ``lightning_chunked`` (the callback), ``lightning_loops``
(what of Lightning it touches), ``lightning_datamodule``, ``lightning_ledger``,
``lightning_plain`` and ``lightning_run`` (a run from a configuration).
"""

from __future__ import annotations

from lading.errors import missing_extra

try:
    import lightning.pytorch  # noqa: F401 (opened here first, so that its absence is one line)
except ModuleNotFoundError as error:
    raise missing_extra("lightning", "lightning", "lading.train.lightning") from error

from lading.train.lightning.chunked import ChunkedTraining
from lading.train.lightning.datamodule import (
    ChunkedQuantizedAutoregressiveAudio,
    ChunkedSequenceDataset,
    QuantizedAutoregressiveAudio,
    SequenceDataset,
)
from lading.train.lightning.ledger import LedgerCallback
from lading.train.lightning.plain import PlainLoader, plain

__all__ = [
    "ChunkedQuantizedAutoregressiveAudio",
    "ChunkedSequenceDataset",
    "ChunkedTraining",
    "LedgerCallback",
    "PlainLoader",
    "QuantizedAutoregressiveAudio",
    "SequenceDataset",
    "plain",
]
