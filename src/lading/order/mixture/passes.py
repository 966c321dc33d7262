"""Which sample a draw is: every dataset runs through its passes, each differently shuffled.

    draw j of dataset d   ─▶   pass j // L,  Permutation(L, key=(seed, d, pass))(j mod L)

With weights of samples this is a place of the pass, and they say what stands there (``order.sample_weights``).

A stream of draws has a key: of the seed where draws continue over the epochs,
of seed and epoch where every epoch is a stream of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lading.identity.hashing import fold, fold_int, key64, keys64, text64
from lading.order.permutation import side
from lading.order.sample_weights import Tables, weighted_places, weighted_rows
from lading.order.shuffle import permute_pass, unpermute_pass

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


class Passes:
    """Draws of each dataset to samples, and back.

    Args:
        lengths: Samples of each dataset.
        seed: Seed of the plan.
        shuffle: ``full``; ``window``: passes keep neighbours together; ``none``: every pass in the dataset's order.
        window: Samples of a window, for ``window``.
        tables: Weights of single samples, by dataset, where there are some.
    """

    def __init__(
        self, lengths: Sequence[int], seed: int, shuffle: str = "full", window: int = 4096, tables: Tables | None = None
    ) -> None:
        self.lengths, self.seed, self.shuffle, self.window_samples = tuple(lengths), seed, shuffle, window
        self.tables = tables or {}
        self._lengths = np.array(self.lengths, dtype=np.int64)
        self.keys = functools.lru_cache(maxsize=4)(self._keys)
        self.rounds_key = functools.lru_cache(maxsize=4)(self._rounds_key)

    def indices(self, epoch: int | None, datasets: I32, draws: I64) -> I64:
        """Return the index behind each draw; ``epoch`` where every epoch is a stream of its own."""
        lengths = self._lengths[datasets]
        passes, places = np.divmod(draws, lengths)
        if self.shuffle == "none" and not self.tables:
            return places
        keys = fold(self.keys(epoch)[datasets], passes.astype(np.uint64))
        places = permute_pass(self.shuffle, lengths, keys, places, self.window_samples)
        return weighted_rows(self.tables, datasets, places, keys) if self.tables else places

    def draws(self, epoch: int | None, dataset: int, index: int, first: int, stop: int) -> I64:
        """Return the draws in ``[first, stop)`` that hold a sample, in ascending order."""
        length = self.lengths[dataset]
        if first >= stop:
            return np.empty(0, dtype=np.int64)
        passes = np.arange(first // length, (stop - 1) // length + 1, dtype=np.int64)
        keys = keys64(int(self.keys(epoch)[dataset]), passes)
        owners, places = weighted_places(self.tables, dataset, index, keys)
        inside = unpermute_pass(self.shuffle, self._lengths[[dataset]], keys[owners], places, self.window_samples)
        draws = passes[owners] * length + inside
        return np.sort(draws[(draws >= first) & (draws < stop)])

    def table(self, epoch: int | None, already: I64) -> U64:
        """Return what the kernel asks of each dataset: draws already made, length, side and key."""
        lengths = np.maximum(self._lengths, 1)
        return np.stack([already.astype(np.uint64), lengths.astype(np.uint64), side(lengths), self.keys(epoch)], axis=1)

    def _stream_key(self, epoch: int | None) -> int:
        return key64(self.seed) if epoch is None else key64(self.seed, "epoch", epoch)

    def _keys(self, epoch: int | None) -> U64:
        """Return the key of each dataset in a stream."""
        return keys64(self._stream_key(epoch), np.arange(len(self.lengths)))

    def _rounds_key(self, epoch: int | None) -> np.uint64:
        """Return the key of a stream's rounds."""
        return np.uint64(fold_int(self._stream_key(epoch), text64("round")))

    def __reduce__(self) -> tuple[type[Passes], tuple[object, ...]]:
        return Passes, (self.lengths, self.seed, self.shuffle, self.window_samples, self.tables)
