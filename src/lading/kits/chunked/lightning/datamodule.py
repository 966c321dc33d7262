"""The data modules of ``lading.kits.chunked.datamodule`` as real ``LightningDataModule``s, of the same names.

    trainer.fit(model, datamodule=ChunkedSequenceDataset(train, val, train_chunk_size=30, loader={"batch_size": 32}))

They bring the callback along that chunks need, so that an ordinary trainer is
enough, and their loaders' states travel in the checkpoint.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningDataModule, Trainer

from lading.kits.chunked.datamodule import audio, chunked, sequence
from lading.kits.chunked.lightning.chunked import ChunkedTraining


class _InLightning:
    """What Lightning asks of a data module beyond ours; stands before both among the bases."""

    _attached_trainer: Trainer | None = None

    @property
    def trainer(self) -> Trainer | None:
        """The trainer this module is attached to."""
        return self._attached_trainer

    @trainer.setter
    def trainer(self, trainer: Trainer | None) -> None:
        self._attached_trainer = trainer
        callbacks = getattr(trainer, "callbacks", None)
        if callbacks is not None and not any(isinstance(callback, ChunkedTraining) for callback in callbacks):
            # first, so that the progress bar and the checkpoints find the lengths of the coming chunk
            callbacks.insert(0, ChunkedTraining(monitor=getattr(self, "monitor", "val_loss")))

    def prepare_data(self) -> None:
        """Nothing to prepare; subclasses download here."""

    def train_dataloader(self, **loader: Any) -> Any:
        return super().train_dataloader(**loader)  # type: ignore[misc]

    def val_dataloader(self, **loader: Any) -> Any:
        """Return the validation loader; Lightning takes an empty list for none."""
        return super().val_dataloader(**loader) or []  # type: ignore[misc]

    def test_dataloader(self, **loader: Any) -> Any:
        return super().test_dataloader(**loader) or []  # type: ignore[misc]

    def predict_dataloader(self) -> Any:
        """Return the test partition as one pass without chunks, for ``trainer.predict``."""
        return sequence.SequenceDataset._loader(self, "test", {}) or []  # type: ignore[arg-type]


class SequenceDataset(_InLightning, sequence.SequenceDataset, LightningDataModule):
    """``lading.kits.chunked.SequenceDataset`` for Lightning."""


class ChunkedSequenceDataset(_InLightning, chunked.ChunkedSequenceDataset, LightningDataModule):
    """``lading.kits.chunked.ChunkedSequenceDataset`` for Lightning; sizes count batches."""


class QuantizedAutoregressiveAudio(_InLightning, audio.QuantizedAutoregressiveAudio, LightningDataModule):
    """``lading.kits.chunked.QuantizedAutoregressiveAudio`` for Lightning."""


class ChunkedQuantizedAutoregressiveAudio(_InLightning, audio.ChunkedQuantizedAutoregressiveAudio, LightningDataModule):
    """``lading.kits.chunked.ChunkedQuantizedAutoregressiveAudio`` for Lightning; sizes count batches."""
