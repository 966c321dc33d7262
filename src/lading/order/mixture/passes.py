"""Which sample a draw is: every dataset runs through its passes, each differently shuffled.

    draw j of dataset d   ─▶   pass j // L,  Permutation(L, key=(seed, d, pass))(j mod L)

A stream of draws has a key: of the seed where draws continue over the epochs,
of seed and epoch where every epoch is a stream of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold, fold_int, key64, keys64, text64
from lading.order.permutation import permute, side, unpermute
from lading.order.shuffle import permute_windows, unpermute_windows

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


class Passes:
    """Draws of each dataset to samples, and back.

    Args:
        lengths: Samples of each dataset.
        seed: Seed of the plan.
        shuffle: ``full``; ``window``: passes keep neighbours together; ``none``: every pass in the dataset's order.
        window_samples: Samples of a window, for ``window``.
    """

    def __init__(self, lengths: Sequence[int], seed: int, shuffle: str = "full", window_samples: int = 4096) -> None:
        self.lengths, self.seed, self.shuffle, self.window_samples = tuple(lengths), seed, shuffle, window_samples
        self._lengths = np.array(self.lengths, dtype=np.int64)
        self.keys = functools.lru_cache(maxsize=4)(self._keys)
        self.rounds_key = functools.lru_cache(maxsize=4)(self._rounds_key)

    def indices(self, epoch: int | None, datasets: I32, draws: I64) -> I64:
        """Return the index behind each draw; ``epoch`` where every epoch is a stream of its own."""
        lengths = self._lengths[datasets]
        if self.shuffle == "none":
            return draws % lengths
        passes, inside = np.divmod(draws, lengths)
        keys = fold(self.keys(epoch)[datasets], passes.astype(np.uint64))
        if self.shuffle == "window":
            return permute_windows(lengths, keys, inside, self.window_samples)
        return permute(lengths, keys, inside)

    def draws(self, epoch: int | None, dataset: int, index: int, first: int, stop: int) -> I64:
        """Return the draws in ``[first, stop)`` that hold a sample, in ascending order."""
        length = self.lengths[dataset]
        if first >= stop:
            return np.empty(0, dtype=np.int64)
        passes = np.arange(first // length, (stop - 1) // length + 1, dtype=np.int64)
        draws = passes * length + self._places(epoch, dataset, index, passes)
        return draws[(draws >= first) & (draws < stop)]

    def table(self, epoch: int | None, already: I64) -> U64:
        """Return what the kernel asks of each dataset: draws already made, length, side and key."""
        lengths = np.maximum(self._lengths, 1)
        return np.stack([already.astype(np.uint64), lengths.astype(np.uint64), side(lengths), self.keys(epoch)], axis=1)

    def _places(self, epoch: int | None, dataset: int, index: int, passes: I64) -> I64:
        """Return the place of a sample in each of some passes over its dataset."""
        indices = np.full(len(passes), index, dtype=np.int64)
        if self.shuffle == "none":
            return indices
        keys = keys64(int(self.keys(epoch)[dataset]), passes)
        if self.shuffle == "window":
            return unpermute_windows(self._lengths[dataset : dataset + 1], keys, indices, self.window_samples)
        return unpermute(self.lengths[dataset], keys, indices)

    def _stream_key(self, epoch: int | None) -> int:
        return key64(self.seed) if epoch is None else key64(self.seed, "epoch", epoch)

    def _keys(self, epoch: int | None) -> U64:
        """Return the key of each dataset in a stream."""
        return keys64(self._stream_key(epoch), np.arange(len(self.lengths)))

    def _rounds_key(self, epoch: int | None) -> np.uint64:
        """Return the key of a stream's rounds."""
        return np.uint64(fold_int(self._stream_key(epoch), text64("round")))

    def __reduce__(self) -> tuple[type[Passes], tuple[tuple[int, ...], int, str, int]]:
        return Passes, (self.lengths, self.seed, self.shuffle, self.window_samples)
