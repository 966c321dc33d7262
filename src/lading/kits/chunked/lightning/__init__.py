"""Chunks in Lightning: an ordinary ``Trainer``, an ordinary ``LightningModule``.

    data   = ChunkedSequenceDataset(train, val, train_chunk_size=2000, loader={"batch_size": 32})
    record = LedgerCallback("runs/7")    # lading.train.lightning
    Trainer(max_epochs=40, callbacks=[record]).fit(model, datamodule=data)

One chunk is one epoch of the trainer, so validation follows each chunk. Behind this door: ``chunked`` (the callback),
``datamodule`` and ``run`` (a run from a configuration).
"""

from __future__ import annotations

from lading.errors import missing_extra

try:
    import lightning.pytorch  # noqa: F401 (opened here first, so that its absence is one line)
except ModuleNotFoundError as error:
    raise missing_extra("lightning", "lightning", "lading.kits.chunked.lightning") from error

from lading.kits.chunked.lightning.chunked import ChunkedTraining
from lading.kits.chunked.lightning.datamodule import (
    ChunkedQuantizedAutoregressiveAudio,
    ChunkedSequenceDataset,
    QuantizedAutoregressiveAudio,
    SequenceDataset,
)

__all__ = [
    "ChunkedQuantizedAutoregressiveAudio",
    "ChunkedSequenceDataset",
    "ChunkedTraining",
    "QuantizedAutoregressiveAudio",
    "SequenceDataset",
]
