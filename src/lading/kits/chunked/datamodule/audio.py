"""Audio files as partitions for autoregressive models.

files in natural order   0 ─────────────── p ────── p + (1-p)/2 ────── 1
                              train            val             test
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lading.errors import SourceError
from lading.kits.chunked.audio.torch import (
    ChunkedQuantizedAudioDataset,
    QuantizedAudioDataset,
    WindowsInOrder,
    collate_audio,
)
from lading.kits.chunked.datamodule.chunked import ChunkedSequenceDataset
from lading.kits.chunked.datamodule.sequence import SequenceDataset

# Arguments that are handed on to the datasets of the partitions.
_OF_DATASETS = (
    *("bits", "sample_len", "quantization", "drop_last", "target_sr", "context_len", "pad_len"),
    *("on_bad_file", "channels"),
)


class QuantizedAutoregressiveAudio(SequenceDataset):
    """Quantized audio, split by files into training, validation and test.

    Args:
        path: Folder of audio files.
        bits: Levels are 0 to ``2**bits - 1``.
        sample_len: Samples in a window; None: a whole file is one sample.
        train_percentage: Share of the files for training; the rest is halved into validation and test.
        quantization: ``linear`` or ``mu-law``.
        drop_last: Leave out the shorter rest at a file's end (the loader's ``drop_last`` is another thing).
        context_len: Targets to cut off the head of y.
        target_sr: Rate to resample to.
        pad_len: Silence to put in front of x.
        on_bad_file: ``raise`` or ``skip`` files that are no audio.
        channels: ``mono`` or ``interleave``.
        in_order: Train on the windows of a file one after another, each on the same row of successive batches, for
            truncated back-propagation; batches then carry ``starts``. Not together with chunk sizes.
        options: Arguments of ``SequenceDataset``.
    """

    dataset_class: type[QuantizedAudioDataset] = QuantizedAudioDataset

    def __init__(
        self,
        path: str | os.PathLike[str],
        bits: int = 8,
        sample_len: int | None = None,
        train_percentage: float = 0.88,
        quantization: str = "linear",
        drop_last: bool = False,
        context_len: int | None = None,
        target_sr: int | None = None,
        pad_len: int | None = None,
        on_bad_file: str = "raise",
        channels: str = "mono",
        in_order: bool = False,
        **options: Any,
    ) -> None:
        if not 0 < train_percentage <= 1:
            raise SourceError(
                f"train_percentage={train_percentage!r}: expected a share above 0, up to 1, such as 0.88."
            )
        self.path, self.bits, self.sample_len, self.train_percentage = path, bits, sample_len, train_percentage
        self.quantization, self.drop_last, self.context_len = quantization, drop_last, context_len
        self.target_sr, self.pad_len, self.on_bad_file = target_sr, pad_len, on_bad_file
        self.channels, self.in_order = channels, in_order
        super().__init__(**options)

    @property
    def d_input(self) -> int:
        """Numbers per position of x."""
        return 1

    @property
    def d_output(self) -> int:
        """Levels to choose from."""
        return 1 << self.bits

    @property
    def n_tokens(self) -> int:
        """Levels that x may hold."""
        return 1 << self.bits

    @property
    def l_output(self) -> int | None:
        """Positions of y."""
        return self.sample_len

    def setup(self, stage: str | None = None) -> None:
        """Make the three partitions; a second call changes nothing."""
        if self.dataset_train is not None:
            return
        p = self.train_percentage
        middle = p + (1 - p) / 2
        self.dataset_train, self.dataset_val, self.dataset_test = (
            self._files(*span) for span in ((0, p), (p, middle), (middle, 1))
        )

    def collate_fn(self, batch: Sequence[Any]) -> Any:
        """Fill up to the longest: ``(x, y, {"lengths": ...})``."""
        return collate_audio(batch, 1 << (self.bits - 1))

    def arguments(self, partition: str, loader: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a partition's loader; windows in order come from a batch sampler."""
        arguments = super().arguments(partition, loader)
        if not (self.in_order and partition == "train" and self.dataset_train is not None):
            return arguments
        shuffle, batch_size = arguments.pop("shuffle", True), arguments.pop("batch_size", 1)
        arguments.pop("drop_last", None)
        batches = WindowsInOrder(self.dataset_train, batch_size, shuffle=bool(shuffle), seed=self.seed)
        return {**arguments, "batch_sampler": batches}

    def _files(self, ratio_min: float, ratio_max: float) -> QuantizedAudioDataset:
        arguments = {name: getattr(self, name) for name in _OF_DATASETS}
        span: dict[str, Any] = {"ratio_min": ratio_min, "ratio_max": ratio_max}
        return self.dataset_class(self.path, **span, **arguments, with_starts=self.in_order)


class ChunkedQuantizedAutoregressiveAudio(QuantizedAutoregressiveAudio, ChunkedSequenceDataset):
    """Quantized audio trained in chunks; ``train_chunk_size`` and ``val_chunk_size`` count batches."""

    dataset_class = ChunkedQuantizedAudioDataset

    def init(self) -> None:
        """Refuse what does not go together: a plan's order, and windows in order."""
        if self.in_order and self.use_chunked_training:
            raise SourceError(
                "in_order=True with chunk sizes: chunks follow the plan's shuffled order, so the windows of a file do "
                "not come one after another. Leave out the chunk sizes, or in_order."
            )
