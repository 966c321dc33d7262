"""Quantized audio as a dataset: each sample is a window of a file, ready for an autoregressive model.

window          s0 s1 s2 s3 ...          integers 0 .. 2**bits - 1
y [L, 1]        s0 s1 s2 s3 ...          what is to be predicted
x [L]         z s0 s1 s2 ...             what is known before it; z is silence, q_zero(bits)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from lading.errors import SourceError
from lading.kits.chunked.audio.quantize import QUANTIZATIONS, q_zero
from lading.kits.chunked.audio.soundfile import Clip, ClipReader, audio_files, probe
from lading.order.chunked_sampler import ChunkedSampler
from lading.order.permutation import Permutation
from lading.runtime.fields import is_whole

# What changes the samples, beside the files and the channels.
_DESCRIBED = ["bits", "sample_len", "quantization", "return_type", "drop_last", "target_sr", "context_len", "pad_len"]
IGNORED = -100  # the target that torch's cross entropy leaves out


class QuantizedAudioDataset(torch.utils.data.Dataset[Any]):
    """Windows of the audio files of a folder, quantized.

    Args:
        path: Folder of WAV, FLAC or OGG files (or one file), sub-folders included, taken in natural order.
        bits: Levels are 0 to ``2**bits - 1``.
        ratio_min: Start of the slice of files to use, as a share of all.
        ratio_max: End of that slice.
        sample_len: Samples in a window, at ``target_sr``; None: a whole file is one sample. Interleaved channels count.
        quantization: ``linear`` or ``mu-law``; every window is min-max scaled by itself.
        return_type: ``autoregressive`` for ``(x, y)``, None for the bare window ``[L, 1]``.
        drop_last: Leave out the shorter rest at a file's end.
        target_sr: Rate to resample to; None: the files', which must be the same then.
        context_len: Targets to cut off the head of y.
        pad_len: Silence to put in front of x.
        on_bad_file: ``raise`` names a file that is no audio, ``skip`` leaves it out (see ``skipped``).
        channels: ``mono`` takes the mean of the channels, ``interleave`` gives them in turn (left, right, left ...).
        with_starts: Give ``(x, y, start)``, the first sample of the window in its file, so that a model that keeps its
            state from window to window knows where a file begins.
    """

    random_free = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        bits: int = 8,
        ratio_min: float = 0,
        ratio_max: float = 1,
        sample_len: int | None = None,
        quantization: str = "linear",
        return_type: str | None = "autoregressive",
        drop_last: bool = False,
        target_sr: int | None = None,
        context_len: int | None = None,
        pad_len: int | None = None,
        *,
        on_bad_file: str = "raise",
        channels: str = "mono",
        with_starts: bool = False,
    ) -> None:
        self.path, self.bits, self.ratio_min, self.ratio_max = str(path), bits, ratio_min, ratio_max
        self.sample_len, self.quantization, self.return_type = sample_len, quantization, return_type
        self.drop_last, self.target_sr = drop_last, target_sr
        self.context_len, self.pad_len, self.on_bad_file = context_len, pad_len, on_bad_file
        self.channels, self.with_starts = channels, with_starts
        self._check()
        self.zero = q_zero(bits)
        self.quantizer, self.dequantizer = QUANTIZATIONS[quantization]
        self.skipped: list[str] = []
        self.clips = self._clips()
        self._check_clips()
        self.file_names = [clip.path for clip in self.clips]
        interleaved = channels == "interleave"
        self._lengths = np.array([clip.length(target_sr, interleaved) for clip in self.clips], dtype=np.int64)
        self._ends = np.cumsum(self._windows(), dtype=np.int64)
        self._reader = ClipReader(target_sr, interleaved)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Any:
        """Return one window: ``(x, y)``, ``(x, y, start)``, or ``[L, 1]`` with ``return_type=None``."""
        file, start, length = self.window(index)
        levels = self.quantizer(self._reader.read(self.clips[file], start, length), self.bits)
        y = torch.from_numpy(levels).unsqueeze(1)
        if self.return_type is None:
            return y
        x, y = self._shifted(y)
        return (x, y, start) if self.with_starts else (x, y)

    def window(self, index: int) -> tuple[int, int, int]:
        """Return file number, first sample and length (both at the target rate) of a window."""
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"Index {index} out of range [0, {n})")
        index = int(index) % n
        file = int(np.searchsorted(self._ends, index, side="right"))
        if self.sample_len is None:
            return file, 0, int(self._lengths[file])
        start = (index - (int(self._ends[file - 1]) if file else 0)) * self.sample_len
        return file, start, min(self.sample_len, int(self._lengths[file]) - start)

    @property
    def window_ends(self) -> NDArray[np.int64]:
        """Windows up to the end of each file."""
        return self._ends

    def file_of(self, index: int) -> str:
        """Return the file a sample lies in, for errors."""
        return self.clips[self.window(index)[0]].path

    def fingerprint(self) -> dict[str, Any]:
        """Return what the samples depend on: the files by size and time, and every argument."""
        files = [(os.path.basename(c.path), os.path.getsize(c.path), os.stat(c.path).st_mtime_ns) for c in self.clips]
        described = {"files": [list(f) for f in files], **{name: getattr(self, name) for name in _DESCRIBED}}
        return described if self.channels == "mono" else {**described, "channels": self.channels}

    def collate(self, batch: Sequence[Any]) -> Any:
        """Put samples of any lengths together, see ``collate_audio``."""
        return collate_audio(batch, self.zero)

    def _shifted(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        silence = torch.full((1 + (self.pad_len or 0),), self.zero, dtype=torch.int64)
        x = torch.cat([silence, y[:-1, 0]])
        return x, y[self.context_len or 0 :]

    def _clips(self) -> list[Clip]:
        names = audio_files(self.path)
        clips = []
        for name in names[int(self.ratio_min * len(names)) : int(self.ratio_max * len(names))]:
            try:
                clips.append(probe(name))
            except SourceError:
                if self.on_bad_file == "raise":
                    raise
                self.skipped.append(name)
        return clips

    def _windows(self) -> np.ndarray:
        if self.sample_len is None:
            return np.ones(len(self.clips), dtype=np.int64)
        return self._lengths // self.sample_len if self.drop_last else -(-self._lengths // self.sample_len)

    def _check_clips(self) -> None:
        """Refuse files that do not go together, naming two of them."""
        if self.target_sr is None:
            self._check_same("rate", "Hz", "Pass target_sr= to resample them.")
        if self.channels == "interleave":
            self._check_same("channels", "channels", "Pass channels='mono', or leave some files out.")

    def _check_same(self, name: str, unit: str, way_out: str) -> None:
        values = [getattr(clip, name) for clip in self.clips]
        other = next((n for n, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise SourceError(
                f"{self.clips[0].path} has {values[0]} {unit}, {self.clips[other].path} has {values[other]}: expected "
                f"the same in all files. {way_out}"
            )

    def _check(self) -> None:
        choices = {"quantization": tuple(QUANTIZATIONS), "return_type": ("autoregressive", None)}
        choices |= {"on_bad_file": ("raise", "skip"), "channels": ("mono", "interleave")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise SourceError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(map(repr, allowed))}.")
        for name, least in {"sample_len": 1, "target_sr": 1, "context_len": 0, "pad_len": 0}.items():
            value = getattr(self, name)
            if value is not None and not is_whole(value, least):
                raise SourceError(f"{name}={value!r}: expected an integer from {least} up, or None.")
        if not 0 <= self.ratio_min <= self.ratio_max <= 1:
            raise SourceError(
                f"ratio_min={self.ratio_min}, ratio_max={self.ratio_max}: expected 0 <= ratio_min <= ratio_max <= 1."
            )


class ChunkedQuantizedAudioDataset(QuantizedAudioDataset):
    """Quantized audio that also knows its chunks; ``chunk_size`` counts samples (windows), not batches.

    Args:
        path: As in ``QuantizedAudioDataset``, like all other arguments.
        chunk_size: Windows in a chunk; None: everything is one chunk.
        chunk_seed: Same seed, same chunks.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        chunk_size: int | None = None,
        chunk_seed: int = 42,
        **kwargs: Any,
    ) -> None:
        super().__init__(path, *args, **kwargs)
        self.chunk_size, self.chunk_seed = chunk_size, chunk_seed
        self.chunks = ChunkedSampler(max(1, len(self)), chunk_size or max(1, len(self)), chunk_seed)

    @property
    def total_chunks(self) -> int:
        """Chunks that one pass over the windows takes."""
        return self.chunks.total_chunks

    def chunk(self, number: int) -> torch.utils.data.Subset[Any]:
        """Return the windows of one chunk as a dataset; numbers past one pass start the next."""
        return torch.utils.data.Subset(self, self.chunks.get_chunk_indices(number).tolist())


def collate_audio(batch: Sequence[Any], zero: int) -> Any:
    """Stack samples; shorter ones are filled up at their end.

    Args:
        batch: ``(x, y)`` pairs, ``(x, y, start)``, or bare windows.
        zero: Level of silence, which fills x; y is filled with -100, which the loss leaves out.

    Returns:
        ``(x, y, {"lengths": int64 [B]})``, lengths being those of x before it was filled; bare windows come back
        as ``(windows, {"lengths": ...})``; with starts, ``{"starts": int64 [B]}`` as well.
    """
    bare = isinstance(batch[0], torch.Tensor)
    inputs = list(batch) if bare else [sample[0] for sample in batch]
    x = pad_sequence(inputs, batch_first=True, padding_value=zero)
    names = {"lengths": torch.tensor([len(sample) for sample in inputs], dtype=torch.int64)}
    if bare:
        return x, names
    if len(batch[0]) == 3:
        names["starts"] = torch.tensor([sample[2] for sample in batch], dtype=torch.int64)
    return x, pad_sequence([sample[1] for sample in batch], batch_first=True, padding_value=IGNORED), names


class WindowsInOrder(torch.utils.data.Sampler[list[int]]):
    """Batches of windows for truncated back-propagation: a file's windows on the same row of successive batches.

        row 0   file 7: 0 1 2 3 4 | file 1: 0 1 ...      files in groups of ``batch_size``, the longest on row 0
        row 1   file 2: 0 1 2 3   | file 9: 0 ...        a shorter one ends, and the batch is shorter from its end on

    Every window once. Pass it as ``batch_sampler``; with ``with_starts=True`` the dataset tells where a file begins.

    Args:
        dataset: The windows.
        batch_size: Files read side by side.
        shuffle: Shuffle the files, differently in each epoch.
        seed: Same seed, same order.
    """

    def __init__(
        self, dataset: QuantizedAudioDataset, batch_size: int, *, shuffle: bool = False, seed: int = 42
    ) -> None:
        if not is_whole(batch_size, 1):
            raise SourceError(f"batch_size={batch_size!r}: expected a number of files from 1 up.")
        self.dataset, self.batch_size, self.shuffle, self.seed = dataset, batch_size, shuffle, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the files."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        ends = self.dataset.window_ends
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        for group in self._groups(ends - starts):
            firsts, sizes = starts[group], (ends - starts)[group]
            for place in range(int(sizes.max(initial=0))):
                yield (firsts[sizes > place] + place).tolist()

    def __len__(self) -> int:
        sizes = np.diff(self.dataset.window_ends, prepend=0)
        return sum(int(sizes[group].max(initial=0)) for group in self._groups(sizes))

    def _groups(self, sizes: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the files of each group, those with the most windows first."""
        order = np.arange(len(sizes))
        if self.shuffle and len(sizes):
            order = Permutation(len(sizes), key=(self.seed, self.epoch))(order)
        for first in range(0, len(order), self.batch_size):
            group = order[first : first + self.batch_size]
            yield group[np.argsort(-sizes[group], kind="stable")]
