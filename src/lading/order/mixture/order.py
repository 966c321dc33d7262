"""The order of a weighted run: which sample stands where, and where a sample stands.

    position ─▶ block, place ─▶ (dataset, draw j) ─▶ pass j // L, Permutation(L, (seed, dataset, pass))(j mod L)

Both directions are arithmetic; nothing grows with the data. With
``stopping="restart"`` the draws run on over the epochs. Otherwise each epoch
is a stream of its own, and the epoch is in every key.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import MixtureError
from lading.identity.hashing import fold, fold_int, key64, keys64, text64
from lading.order.event import Reweight
from lading.order.mixture.rounds import BLOCK, next_block
from lading.order.mixture.spec import MixtureSpec, finite_error
from lading.order.mixture.stopping import stream_end
from lading.order.mixture.stream import StagedStream
from lading.order.mixture.tree import CompiledTree
from lading.order.permutation import permute, side, unpermute
from lading.order.shuffle import permute_blocks, unpermute_blocks
from lading.runtime import compiled

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


class Mixed:
    """Samples drawn from several datasets by weight.

    Args:
        lengths: Samples of each dataset.
        seed: Seed of the plan.
        spec: The mixture as planned.
        events: Reweightings made since; each is one more stage.
        shuffle: ``full``; ``block``: passes keep neighbours together; ``none``: every dataset in its own order, pass
            after pass, evenly interleaved.
        block_samples: Samples of a block, for ``block``.
        make_tree: Plain or compiled trees; what this process uses, by default.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        seed: int,
        spec: MixtureSpec,
        events: Iterable[Any] = (),
        make_tree: Any = None,
        known: Sequence[Any] = (),
        *,
        shuffle: str = "full",
        block_samples: int = 4096,
    ) -> None:
        self.lengths, self.seed, self.spec = tuple(lengths), seed, spec
        self.events = tuple(e for e in events if isinstance(e, Reweight))
        self.epoch_samples = spec.epoch_samples
        self.shuffle, self.block_samples, self._make_tree = shuffle, block_samples, make_tree
        _check_lengths(self.lengths, timeline(spec, self.events))
        self.stream = StagedStream(timeline(spec, self.events), self.end, known, make_tree)
        self._block = functools.lru_cache(maxsize=8)(self._make_block)
        self._keys = functools.lru_cache(maxsize=4)(self._make_keys)
        self._blocks_key = functools.lru_cache(maxsize=4)(self._make_blocks_key)
        self._lengths = np.array(self.lengths, dtype=np.int64)
        self._sides = side(np.maximum(self._lengths, 1))

    @functools.cached_property
    def end(self) -> int | None:
        """Samples in an epoch's stream where it ends by itself, else None."""
        if not self.spec.is_finite:
            return None
        end = stream_end(self.lengths, self.spec.stages[0][1], self.spec.stopping)
        if end != self.epoch_samples:
            raise MixtureError(
                f"the mixture was planned for epochs of {self.epoch_samples} samples, but with these lengths "
                f"stopping={self.spec.stopping!r} ends after {end}. Make the mixture again for these datasets."
            )
        return end

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the absolute positions ``[start, stop)`` of one epoch."""
        epoch, offset = self._cut(start)
        last = offset + stop - start
        first, head = divmod(offset, BLOCK)
        if last <= (first + 1) * BLOCK:
            columns = self._block(epoch, first)
            datasets, draws = columns[0][head : head + stop - start], columns[1][head : head + stop - start]
        else:
            parts = [self._block(epoch, b) for b in range(first, -(-last // BLOCK))]
            datasets, draws = (_joined(column, head, stop - start) for column in zip(*parts, strict=True))
        return datasets.copy(), self._indices(epoch, datasets, draws)

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the absolute positions in ``[start, stop)`` that hold a sample, in ascending order."""
        found = [np.empty(0, dtype=np.int64)]
        while start < stop:
            epoch, offset = self._cut(start)
            last = min(stop - start + offset, self.stream.end)
            found.append(start - offset + self._in_stream(epoch, dataset, index, offset, last))
            start += last - offset
        return np.concatenate(found)

    def counts(self, position: int) -> list[int]:
        """Return how many samples of each dataset lie before an absolute position."""
        epoch, offset = self._cut(position)
        block, inside = divmod(offset, BLOCK)
        counts = self.stream.counts(block * BLOCK)
        if inside:
            counts = counts + np.bincount(self._block(epoch, block)[0][:inside], minlength=len(self.lengths))
        if epoch:
            counts = counts + epoch * self.stream.counts(self.stream.end)
        found: list[int] = counts.tolist()
        return found

    def weights_at(self, position: int) -> tuple[int, ...]:
        """Return the integer weights in force at an absolute position."""
        offset = self._cut(position)[1]
        return tuple(self.stream.stage_at(offset).weights.tolist())

    def extended(self, event: Reweight) -> Mixed:
        """Return the order with one more reweighting; what was worked out before it is kept."""
        events = (*self.events, event)
        known = [s for s in self.stream.stages if s.start < event.position]
        return Mixed(self.lengths, self.seed, self.spec, events, self._make_tree, known, **self._shuffling)

    def __reduce__(self) -> Any:
        arguments = (self.lengths, self.seed, self.spec, self.events, self._make_tree)
        return functools.partial(Mixed, **self._shuffling), arguments

    @property
    def _shuffling(self) -> dict[str, Any]:
        return {"shuffle": self.shuffle, "block_samples": self.block_samples}

    def _cut(self, position: int) -> tuple[int, int]:
        """Return the stream's epoch (always 0 where draws run on) and the place in it."""
        return divmod(position, self.epoch_samples) if self.spec.is_finite else (0, position)

    def _stream_key(self, epoch: int) -> int:
        return key64(self.seed, "epoch", epoch) if self.spec.is_finite else key64(self.seed)

    def _make_block(self, epoch: int, block: int) -> tuple[I32, I64]:
        return self.stream.block(block, self._blocks_key(epoch))

    def _make_blocks_key(self, epoch: int) -> int | None:
        if self.shuffle == "none":
            return None
        return fold_int(self._stream_key(epoch), text64("block"))

    def _make_keys(self, epoch: int) -> U64:
        return keys64(self._stream_key(epoch), np.arange(len(self.lengths)))

    def _indices(self, epoch: int, datasets: I32, draws: I64) -> I64:
        if self.shuffle == "none":
            return draws % self._lengths[datasets]
        keys = self._keys(epoch)
        if self.shuffle == "full" and compiled.enabled() and self._make_tree in (None, CompiledTree):
            from lading.order.mixture import kernels  # opened at first use: Numba is optional and slow to import

            found: I64 = kernels.indices(datasets, draws, self._lengths.view(np.uint64), self._sides, keys)
            return found
        lengths = self._lengths[datasets]
        passes, inside = np.divmod(draws, lengths)
        keys = fold(keys[datasets], passes.astype(np.uint64))
        if self.shuffle == "block":
            return permute_blocks(lengths, keys, inside, self.block_samples)
        return permute(lengths, keys, inside)

    def _in_stream(self, epoch: int, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the places of a sample in ``[start, stop)`` of one stream."""
        length = self.lengths[dataset]
        first = int(self.stream.counts(start - start % BLOCK)[dataset])
        last = int(self.stream.counts(min(next_block(stop), self.stream.end))[dataset])
        if first >= last:
            return np.empty(0, dtype=np.int64)
        passes = np.arange(first // length, (last - 1) // length + 1, dtype=np.int64)
        draws = passes * length + self._places_in_passes(epoch, dataset, index, passes)
        draws = draws[(draws >= first) & (draws < last)]
        found = np.sort(self.stream.positions(dataset, draws, self._blocks_key(epoch)))
        return found[(found >= start) & (found < stop)]

    def _places_in_passes(self, epoch: int, dataset: int, index: int, passes: I64) -> I64:
        """Return the place of a sample in each of some passes over its dataset."""
        indices = np.full(len(passes), index, dtype=np.int64)
        if self.shuffle == "none":
            return indices
        length, keys = self.lengths[dataset], keys64(int(self._keys(epoch)[dataset]), passes)
        if self.shuffle == "block":
            return unpermute_blocks(np.full(len(passes), length, dtype=np.int64), keys, indices, self.block_samples)
        return unpermute(length, keys, indices)


def _joined(columns: Sequence[Any], head: int, size: int) -> Any:
    """Join columns of neighbouring blocks and cut out a stretch."""
    inner, tail = columns[1:-1], columns[-1]
    before = sum(map(len, columns[:-1])) - head
    return np.concatenate([columns[0][head:], *inner, tail[: size - before]])


def timeline(spec: MixtureSpec, events: Iterable[Reweight]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the planned stages with the reweightings among them; at the same position the later word holds."""
    stages = dict(spec.stages)
    for event in events:
        if spec.is_finite:
            raise finite_error(spec.stopping, "a reweighting")
        if event.position % BLOCK or len(event.weights) != spec.num_datasets:
            raise MixtureError(
                f"a reweighting at position {event.position} has {len(event.weights)} weights: expected a multiple of "
                f"{BLOCK} and {spec.num_datasets} weights. Make it with loader.reweight."
            )
        stages[event.position] = event.weights
    return sorted(stages.items())


def _check_lengths(lengths: tuple[int, ...], stages: Sequence[tuple[int, tuple[int, ...]]]) -> None:
    if len(lengths) != len(stages[0][1]):
        raise MixtureError(f"{len(stages[0][1])} weights were planned for {len(lengths)} datasets: expected one each.")
    for d, length in enumerate(lengths):
        if length < 1 and any(weights[d] for _, weights in stages):
            raise MixtureError(f"dataset {d} is empty but has a weight. Give it weight 0, or fill it.")
