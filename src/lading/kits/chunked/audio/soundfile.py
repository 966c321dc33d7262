"""Read windows of audio files: mono or channels interleaved, at one rate, without decoding what is not asked for.

    file       |·······|·······|·······|···|     windows of ``length`` at the target rate, the rest kept or dropped
    read              margin[───]margin          seek, decode the window and a little around it, resample, cut

The cut of the resampled piece is what the resampled whole file has there: the
piece starts where both rates have a sample, and the margin is longer than the
filter. WAV, FLAC and OGG are read by libsndfile, which seeks, as float32, so
that levels equal those of s4 at 16 bits, too. Handles stay open, a few per
process and thread, and are closed with their reader or before the interpreter
ends.
"""

from __future__ import annotations

import math
import os
import re
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from lading.errors import SourceError, missing_extra
from lading.runtime.paths import local_path

F32 = NDArray[np.float32]

_OPEN_FILES = 8
_FILTER = 256  # samples, at the lower of the two rates, that the resampler looks to each side; generous


@dataclass(frozen=True)
class Clip:
    """One audio file.

    Attributes:
        frames: Samples of one channel at its own rate.
        rate: Its rate in Hz.
    """

    path: str
    frames: int
    rate: int
    channels: int = 1

    def length(self, target_rate: int | None, interleaved: bool = False) -> int:
        """Return its samples at the target rate; of all channels where they are interleaved."""
        same = target_rate is None or target_rate == self.rate
        frames = self.frames if same else max(1, self.frames * (target_rate or 1) // self.rate)
        return frames * self.channels if interleaved else frames


def natural_order(name: str) -> tuple[list[str | int], str]:
    """Return a sort key that puts ``take2`` before ``take10``.

    >>> sorted(["take10.wav", "take2.wav", "b1.wav"], key=natural_order)
    ['b1.wav', 'take2.wav', 'take10.wav']
    """
    parts = re.split(r"(\d+)", name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], name


def audio_files(path: str | os.PathLike[str]) -> list[str]:
    """Return the files of a folder and its sub-folders (not the hidden ones) in natural order, or the one file."""
    folder = local_path(path)
    if folder.is_file():
        return [str(folder)]
    if not folder.is_dir():
        raise SourceError(f"audio folder not found: {folder}. Pass the folder that holds the WAV, FLAC or OGG files.")
    inside = [f.relative_to(folder) for f in folder.rglob("*") if f.is_file()]
    files = [f for f in inside if not any(part.startswith(".") for part in f.parts)]
    if not files:
        raise SourceError(f"audio folder is empty: {folder}. Pass the folder that holds the WAV, FLAC or OGG files.")
    return [str(folder / f) for f in sorted(files, key=lambda f: [natural_order(part) for part in f.parts])]


def probe(path: str) -> Clip:
    """Read the header of a file; one that is no audio, or has none in it, is named in the error."""
    way_out = "Remove the file, or pass on_bad_file='skip' to leave such files out."
    try:
        info = soundfile.info(path)
    except (soundfile.LibsndfileError, RuntimeError) as error:
        size = os.path.getsize(path)
        raise SourceError(
            f"{path} ({size} bytes) is not an audio file libsndfile can read: {error}. {way_out}"
        ) from error
    if info.frames < 1:
        raise SourceError(f"{path} is an audio file without samples. {way_out}")
    return Clip(path, int(info.frames), int(info.samplerate), int(info.channels))


class ClipReader:
    """Reads windows of clips; knows nothing of datasets.

    Args:
        target_rate: Rate in Hz that everything is resampled to; None keeps each file's own.
        interleaved: Give the channels in turn (left, right, left ...) instead of their mean.
    """

    def __init__(self, target_rate: int | None = None, interleaved: bool = False) -> None:
        self.target_rate, self.interleaved = target_rate, interleaved
        self._local = threading.local()

    def read(self, clip: Clip, start: int, length: int) -> F32:
        """Return samples ``[start, start + length)``, counted at the target rate (and over all channels in turn)."""
        if not self.interleaved:
            return self._frames(clip, start, length)
        first, last = start // clip.channels, -(-(start + length) // clip.channels)
        values = self._frames(clip, first, last - first).reshape(-1)
        return values[start - first * clip.channels :][:length]

    def _frames(self, clip: Clip, start: int, length: int) -> F32:
        if self.target_rate is None or self.target_rate == clip.rate:
            return self._decode(clip, start, length)
        common = math.gcd(clip.rate, self.target_rate)
        up, down = self.target_rate // common, clip.rate // common
        margin = math.ceil(_FILTER * max(1.0, down / up) / down)
        first = max(0, start // up - margin)
        last = -(-(start + length) // up) + margin
        piece = self._decode(clip, first * down, min(last * down, clip.frames) - first * down)
        cut = _resample(piece, clip.rate, self.target_rate)[start - first * up :][:length]
        missing = ((0, length - len(cut)), *[(0, 0)] * (cut.ndim - 1))
        return cut if len(cut) == length else np.pad(cut, missing)

    def __getstate__(self) -> dict[str, Any]:
        return {"target_rate": self.target_rate, "interleaved": self.interleaved}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _decode(self, clip: Clip, start: int, frames: int) -> F32:
        try:
            file = self._open(clip.path)
            if file.tell() != start:
                file.seek(start)
            data: F32 = file.read(frames, dtype="float32", always_2d=True)
        except (soundfile.LibsndfileError, RuntimeError) as error:
            raise SourceError(
                f"{clip.path} cannot be decoded at frame {start}: {error}. Is the file damaged?"
            ) from error
        if len(data) != frames:
            raise SourceError(
                f"{clip.path} gave {len(data)} frames from {start} on, expected {frames}. "
                "The file is shorter than its header says, or changed since the dataset was made."
            )
        if self.interleaved:
            return data
        found: F32 = data[:, 0] if data.shape[1] == 1 else data.mean(axis=1)
        return found

    def _open(self, path: str) -> soundfile.SoundFile:
        """Return an open handle of this thread and process: a fork shares file offsets with its parent."""
        if getattr(self._local, "process", None) != os.getpid():
            self._local.process, self._local.files = os.getpid(), OrderedDict()
            # Closed while soundfile is still whole: its own __del__ may run when the interpreter has taken it apart.
            weakref.finalize(self, _close, self._local.files, os.getpid())
        files: OrderedDict[str, soundfile.SoundFile] = self._local.files
        if path not in files:
            if len(files) >= _OPEN_FILES:
                files.popitem(last=False)[1].close()
            files[path] = soundfile.SoundFile(path)
        files.move_to_end(path)
        return files[path]


def _close(files: OrderedDict[str, soundfile.SoundFile], process: int) -> None:
    """Close the handles of a process; those of a parent are its own."""
    if process == os.getpid():
        while files:
            files.popitem()[1].close()


def _resample(samples: F32, rate: int, target_rate: int) -> F32:
    try:
        import soxr  # optional and only needed where rates differ
    except ImportError as error:
        raise missing_extra("soxr", "audio", f"resampling {rate} Hz to {target_rate} Hz") from error
    found: F32 = soxr.resample(samples, rate, target_rate)
    return found
