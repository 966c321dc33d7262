"""Train on audio in chunks, in a loop of your own: python examples/audio.py

Writes a few seconds of tones, cuts them into quantized windows, and trains a
tiny autoregressive model: a chunk of training, a chunk of validation, and on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import soundfile
import torch

from lading.kits.chunked import ChunkedQuantizedAutoregressiveAudio, ChunkedTrainingMixin


class Tones(ChunkedQuantizedAutoregressiveAudio):
    """Synthetic tones, written to ``path`` if there are none yet."""

    def setup(self, stage: str | None = None) -> None:
        """Write the files, then make the partitions."""
        folder = Path(self.path)
        if not folder.is_dir():
            folder.mkdir(parents=True)
            for i in range(20):
                t = np.arange(8000) / 8000
                soundfile.write(folder / f"tone{i}.wav", 0.5 * np.sin(2 * np.pi * (110 + 20 * i) * t), 8000)
        super().setup(stage)


class NextSample(torch.nn.Module):
    """Predicts each level from those before it."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(levels, 16)
        self.recur = torch.nn.GRU(16, 32, batch_first=True)
        self.head = torch.nn.Linear(32, levels)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean cross entropy; targets of -100 do not count."""
        logits = self.head(self.recur(self.embed(x))[0])
        return torch.nn.functional.cross_entropy(logits.transpose(1, 2), y[..., 0])


class Loop(ChunkedTrainingMixin):
    """How to train on a batch; the mixin knows on which."""

    def __init__(self, config: dict, dataset: Tones) -> None:
        self.dataset = dataset
        self.model = NextSample(dataset.d_output)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        super().__init__(config)

    def training_step(self, batch):
        x, y, _ = batch
        loss = self.model.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def validation_step(self, batch):
        x, y, _ = batch
        return self.model.loss(x, y)


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        config = {"train": {"train_chunk_size": 20, "val_chunk_size": 2}, "loader": {"batch_size": 8}}
        loop = Loop(config, Tones(f"{folder}/tones", bits=5, sample_len=200))
        for _ in range(8):
            result = loop.train_epoch_with_chunking()
            print(f"{result['line']:45}  train {result['train_loss']:.3f}  val {result['val_loss']:.3f}")
