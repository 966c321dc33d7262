"""The order of a weighted run: which sample comes where, and where a sample comes.

    position ─▶ step ─▶ round, place ─▶ (dataset, draw j)      the tree and its rounds, ``lading.order.mixture.tree``
    draw j of dataset d ─▶ pass j // L,  Permutation(L, key=(seed, d, pass))(j mod L)                       ``Passes``

Both directions are arithmetic; nothing grows with the data. A round is a step:
its labels are shuffled, so the shares hold at the end of every step, and the
draws of a dataset come in order, so every pass is complete before the next.
With weights of samples a draw is a place of the pass, and they say what stands
there (``lading.order.sample_weights``).

With ``stopping="restart"`` the draws continue over the epochs, and the key of
the stream is that of the seed. Otherwise each epoch is a stream of its own, the
epoch is in every key, and the stream ends

    first_exhausted   right before the first draw that would need a second pass
    all_exhausted     right after the last dataset was seen whole
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import MixtureError
from lading.identity.hashing import fold, fold_int, key64, keys64, text64
from lading.order.event import Reweight, StageBase
from lading.order.mixture.spec import MAX_POSITION, TOTAL, MixtureSpec, check_weights, finite_error
from lading.order.mixture.tree import MAX_ROUND, CompiledTree, Stage, StagedStream, build_tree, round_of, rounds_of
from lading.order.permutation import side
from lading.order.shuffle import permute_pass, unpermute_pass

if TYPE_CHECKING:
    from lading.order.clock import Clock
    from lading.order.sample_weights import Tables

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


class Passes:
    """Draws of each dataset to samples, and back.

    Args:
        shuffle: ``full``; ``window``: passes keep neighbours together; ``none``: every pass in the dataset's order.
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
        if not self.tables:
            return places
        from lading.order.sample_weights import weighted_rows  # few runs weight their samples

        return weighted_rows(self.tables, datasets, places, keys)

    def draws(self, epoch: int | None, dataset: int, index: int, first: int, stop: int) -> I64:
        """Return the draws in ``[first, stop)`` that hold a sample, in ascending order."""
        length = self.lengths[dataset]
        if first >= stop:
            return np.empty(0, dtype=np.int64)
        passes = np.arange(first // length, (stop - 1) // length + 1, dtype=np.int64)
        keys = keys64(int(self.keys(epoch)[dataset]), passes)
        from lading.order.sample_weights import weighted_places

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
        return keys64(self._stream_key(epoch), np.arange(len(self.lengths)))

    def _rounds_key(self, epoch: int | None) -> np.uint64:
        return np.uint64(fold_int(self._stream_key(epoch), text64("round")))

    def __reduce__(self) -> tuple[type[Passes], tuple[object, ...]]:
        return Passes, (self.lengths, self.seed, self.shuffle, self.window_samples, self.tables)


def stream_end(lengths: Sequence[int], weights: Sequence[int], stopping: str) -> int:
    """Return the length of an epoch's stream, in samples; in big integers, as tiny weights reach far.

    >>> half = 1 << 30
    >>> stream_end([10, 100], [half, half], "first_exhausted"), stream_end([10, 100], [half, half], "all_exhausted")
    (21, 199)
    """
    tree = build_tree(weights, [0] * len(weights))
    live = [d for d, w in enumerate(weights) if w > 0]
    if stopping == "first_exhausted":
        end = min(tree.position(d, lengths[d]) for d in live)
    else:
        end = max(tree.position(d, lengths[d] - 1) + 1 for d in live)
    if not 0 < end < MAX_POSITION:
        raise MixtureError(
            f"with stopping={stopping!r} an epoch would have {end} samples: expected 1 to 2**60. "
            "Raise the smallest weight, or use stopping='restart' with epoch_samples=."
        )
    return end


_I32, _I64 = np.dtype(np.int32), np.dtype(np.int64)  # made once: a small bill is mostly such calls

Timeline = tuple[tuple[int, tuple[int, ...]], ...]


class Mixed:
    """Samples drawn from several datasets by weight.

    Args:
        passes: How the draws of each dataset become samples.
        clock: The steps of the run: a round is a step, and stages begin at the borders of steps.
        changes: (position asked for, weights), ascending: the planned stages and what was changed since. None: the
            planned stages.
        base: The stage in force, where the past is not known; ``changes`` then come after it.
    """

    def __init__(
        self,
        passes: Passes,
        spec: MixtureSpec,
        clock: Clock,
        changes: Timeline | None = None,
        base: StageBase | None = None,
    ) -> None:
        self.passes, self.spec, self.clock, self.base = passes, spec, clock, base
        self.changes = spec.stages if changes is None else changes
        self.lengths, self.epoch_samples, self._is_finite = passes.lengths, spec.epoch_samples, spec.is_finite
        _check_end(self.lengths, spec)
        for weights in [w for _, w in self.changes] + ([] if base is None else [base.weights]):
            _check_lengths(self.lengths, weights)
        borders = self._borders(self.changes)
        known = [Stage.first(*borders.pop(0)) if base is None else _stage(base)]
        self._set_stages(known, borders)

    def samples(self, start: int, stop: int) -> tuple[I32, I64]:
        if stop <= start:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        starts, sizes = self._rounds(start, stop)
        datasets, indices = self._columns(starts, sizes)
        head = start - int(starts[0])
        return datasets[head : head + stop - start], indices[head : head + stop - start]

    def step_samples(self, start: int, size: int, first: int = 0, stop: int | None = None) -> tuple[I32, I64]:
        low, high = start + first, start + (size if stop is None else stop)
        if size <= MAX_ROUND and self._is_fused:
            return self._slots(start, size, low, high)
        lo, m = round_of(start, size, low)
        if self._is_fused and lo + m >= high:
            return self._slots(lo, m, low, high)
        starts, sizes = rounds_of(np.array([start]), np.array([size]))
        held = (starts + sizes > low) & (starts < high)
        starts, sizes = starts[held], sizes[held]
        datasets, indices = self._columns(starts, sizes)
        head = low - int(starts[0])
        return datasets[head : head + high - low], indices[head : head + high - low]

    def _slots(self, start: int, size: int, low: int, high: int) -> tuple[I32, I64]:
        """Return dataset numbers and indices at the positions ``[low, high)`` of the round that begins at ``start``."""
        epoch, lo = divmod(start, self.epoch_samples) if self._is_finite else (None, start)
        kernel, arguments = self._fused(epoch, bisect.bisect_right(self.stream.starts, lo) - 1)
        datasets, indices = np.empty(high - low, _I32), np.empty(high - low, _I64)
        kernel(*arguments, lo, size, low - start, datasets, indices)
        return datasets, indices

    def positions(self, dataset: int, index: int, start: int, stop: int) -> I64:
        found = [np.empty(0, dtype=np.int64)]
        while start < stop:
            epoch, offset = self._cut(start)
            end = stop if epoch is None else min(stop, start - offset + self.epoch_samples)
            found.append(self._in_stream(epoch, dataset, index, start, end))
            start = end
        return np.concatenate(found)

    def counts(self, position: int) -> list[int]:
        epoch, offset = self._cut(position)
        border = position
        if offset and self.clock.locate(self.clock.step_from(position)).position != position:
            starts, sizes = self._rounds(position - 1, position)
            lo, size = int(starts[-1]), int(sizes[-1])
            border = position if lo + size == position else lo
        counts = self.stream.counts(offset - (position - border))
        if border < position:
            counts = counts + np.bincount(self.samples(border, position)[0], minlength=len(self.lengths))
        if epoch:
            counts = counts + epoch * self.stream.counts(self.epoch_samples)
        return [int(n) for n in counts]

    def planned(self, starts: I64, sizes: I64) -> NDArray[np.float64]:
        """Return the samples of each dataset that the weights of some steps ask for, in all steps together."""
        owners = np.zeros(len(starts), dtype=np.int64)
        if not self.spec.is_finite:
            owners = np.searchsorted(self.stream.starts, starts, side="right") - 1
        samples = np.bincount(owners, weights=sizes, minlength=len(self.stream.stages))
        shares = np.array([stage.weights for stage in self.stream.stages], dtype=np.float64) / TOTAL
        found: NDArray[np.float64] = samples @ shares
        return found

    def weights_at(self, position: int) -> tuple[int, ...]:
        """Return the integer weights in force at a position."""
        return tuple(self.stream.stages[self.stream.number_at(self._cut(position)[1])].weights.tolist())

    def stage_at(self, position: int) -> StageBase:
        """Return the stage in force at a position, as a plan keeps it to resume from."""
        stage = self.stream.stages[self.stream.number_at(position)]
        columns = (tuple(column.tolist()) for column in (stage.weights, stage.drawn, stage.residuals))
        return StageBase(stage.start, *columns)

    def extended(self, event: Reweight) -> Mixed:
        """Return the order with one more reweighting; what was worked out before it is kept."""
        _check_event(event, self.spec)
        _check_lengths(self.lengths, event.weights)
        after = Mixed.__new__(Mixed)
        vars(after).update({k: v for k, v in vars(self).items() if k not in ("stream", "_table", "_fused")})
        place = bisect.bisect_right(self.changes, event.position, key=lambda change: change[0])
        change = (event.position, event.weights)
        after.changes = (*self.changes[:place], change, *self.changes[place:])
        borders = after._borders((change, *self.changes[place:]))
        known = self.stream.stages[: bisect.bisect_left(self.stream.starts, borders[0][0])]
        known = known or [Stage.first(*borders.pop(0))]
        after._set_stages(known, borders)
        return after

    def __reduce__(self) -> Any:
        return Mixed, (self.passes, self.spec, self.clock, self.changes, self.base)

    def _borders(self, changes: Timeline) -> list[tuple[int, tuple[int, ...]]]:
        """Return where each change acts: at the first step at or after its position; the later one where two meet."""
        borders: dict[int, tuple[int, ...]] = {}
        for position, weights in changes:
            acts_at = self.clock.locate(self.clock.step_from(position)).position if position else 0
            borders[acts_at] = weights
        return list(borders.items())

    def _set_stages(self, known: list[Stage], borders: list[tuple[int, tuple[int, ...]]]) -> None:
        self.stream = StagedStream(known, borders)
        self._table = functools.lru_cache(maxsize=64)(
            lambda epoch, s: self.passes.table(epoch, self.stream.stages[s].drawn)
        )
        self._fused = functools.lru_cache(maxsize=64)(self._make_fused)
        plain = self.passes.shuffle == "full" and not self.passes.tables
        self._is_fused = plain and isinstance(self.stream.tree(0), CompiledTree)

    def _make_fused(self, epoch: int | None, stage: int) -> tuple[Any, tuple[Any, ...]]:
        """Return the kernel of one round and what it is called with, but for the round."""
        tree: Any = self.stream.tree(stage)
        start = int(self.stream.starts[stage])
        return tree.table.step, (start, int(self.passes.rounds_key(epoch)), self._table(epoch, stage))

    def _cut(self, position: int) -> tuple[int | None, int]:
        """Return the epoch whose stream a position is in (None where there is one stream), and the place in it."""
        return divmod(position, self.epoch_samples) if self.spec.is_finite else (None, position)

    def _tail(self, epoch: int) -> tuple[int, int]:
        """Return first position and size of what ``drop_last`` leaves out of an epoch that ends by itself."""
        last = self.clock.locate(self.clock.epoch_start(epoch + 1) - 1)
        start = last.position + last.size
        return start, (epoch + 1) * self.epoch_samples - start

    def _rounds(self, start: int, stop: int) -> tuple[I64, I64]:
        """Return first position and size of the rounds that cover ``[start, stop)`` of one stream."""
        first, last = self.clock.steps_of(np.array([start, stop - 1], dtype=np.int64))[0].tolist()
        ends_in_tail = last < 0
        if ends_in_tail:
            epoch = start // self.epoch_samples
            last = self.clock.epoch_start(epoch + 1) - 1
            first = last + 1 if first < 0 else first
        starts, sizes = self.clock.spans(np.arange(first, last + 1, dtype=np.int64))
        if ends_in_tail:
            tail = self._tail(epoch)
            starts, sizes = np.append(starts, tail[0]), np.append(sizes, tail[1])
        starts, sizes = rounds_of(starts, sizes)
        kept = (starts + sizes > start) & (starts < stop)
        return starts[kept], sizes[kept]

    def _columns(self, starts: I64, sizes: I64) -> tuple[I32, I64]:
        """Return dataset and index at each place of some rounds of one stream, many stages at once."""
        epoch, lo = self._cut(int(starts[0]))
        starts = starts - (int(starts[0]) - lo)
        owners = np.searchsorted(self.stream.starts, starts, side="right") - 1
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(starts)]
        parts = [self._of_stage(epoch, int(owners[a]), starts[a:b], sizes[a:b]) for a, b in itertools.pairwise(cuts)]
        return (
            parts[0]
            if len(parts) == 1
            else (np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]))
        )

    def _of_stage(self, epoch: int | None, s: int, starts: I64, sizes: I64) -> tuple[I32, I64]:
        stage, tree, key = self.stream.stages[s], self.stream.tree(s), self.passes.rounds_key(epoch)
        if self._is_fused:
            fused: Any = tree
            columns: tuple[I32, I64] = fused.rounds(stage.start, starts, sizes, key, self._table(epoch, s))
            return columns
        if self.passes.shuffle == "none":
            datasets, draws = tree.in_order(int(starts[0]) - stage.start, int(sizes.sum()))
        else:
            datasets, draws = tree.rounds(stage.start, starts, sizes, key)
        return datasets, self.passes.indices(epoch, datasets, draws + stage.drawn[datasets])

    def _in_stream(self, epoch: int | None, dataset: int, index: int, start: int, stop: int) -> I64:
        """Return the positions of a sample in ``[start, stop)`` of one stream."""
        origin = 0 if epoch is None else epoch * self.epoch_samples
        low, high = self._rounds(start, start + 1), self._rounds(stop - 1, stop)
        first = int(self.stream.counts(int(low[0][0]) - origin)[dataset])
        last = int(self.stream.counts(int(high[0][-1] + high[1][-1]) - origin)[dataset])
        draws = self.passes.draws(epoch, dataset, index, first, last)
        owners = self.stream.stages_of_draws(dataset, draws)
        found = np.empty(len(draws), dtype=np.int64)
        for s in np.unique(owners).tolist():
            found[owners == s] = self._places(epoch, s, dataset, draws[owners == s], origin)
        found.sort()
        return found[(found >= start) & (found < stop)]

    def _places(self, epoch: int | None, s: int, dataset: int, draws: I64, origin: int) -> I64:
        """Return the positions of a dataset's draws in one stage."""
        stage, tree = self.stream.stages[s], self.stream.tree(s)
        draws = draws - stage.drawn[dataset]
        unshuffled = tree.positions(dataset, draws) + (stage.start + origin)
        if self.passes.shuffle == "none":
            return unshuffled
        steps, _ = self.clock.steps_of(unshuffled)
        starts, sizes = self.clock.spans(np.maximum(steps, self.clock.first_step))
        if epoch is not None and (steps < 0).any():
            tail = self._tail(epoch)
            starts, sizes = np.where(steps < 0, tail[0], starts), np.where(steps < 0, tail[1], sizes)
        low, size = round_of(starts, sizes, unshuffled)
        key = self.passes.rounds_key(epoch)
        return tree.places(dataset, draws, stage.start, (low - origin, size), key) + origin


def timeline(spec: MixtureSpec, events: Iterable[Reweight], after: int = -1) -> Timeline:
    """Return the planned stages with the reweightings among them; at the same position the later word holds.

    Args:
        events: Reweightings, in the order in which they were made.
        after: Leave out what was asked for at or before this position.
    """
    changes = list(spec.stages)
    for event in events:
        _check_event(event, spec)
        changes.append((event.position, event.weights))
    return tuple(sorted((c for c in changes if c[0] > after), key=lambda change: change[0]))


def _stage(base: StageBase) -> Stage:
    columns = (np.array(column, dtype=np.int64) for column in (base.weights, base.drawn, base.residuals))
    return Stage(base.start, *columns)


def _check_event(event: Reweight, spec: MixtureSpec) -> None:
    if spec.is_finite:
        raise finite_error(spec.stopping, "a reweighting")
    check_weights(event.weights, spec.num_datasets, f"the reweighting at step {event.step}")


def _check_lengths(lengths: tuple[int, ...], weights: tuple[int, ...]) -> None:
    if len(weights) != len(lengths):
        raise MixtureError(f"{len(weights)} weights were planned for {len(lengths)} datasets: expected one each.")
    for d, (length, weight) in enumerate(zip(lengths, weights, strict=True)):
        if length < 1 and weight:
            raise MixtureError(f"dataset {d} is empty but has a weight. Give it weight 0, or fill it.")


def _check_end(lengths: tuple[int, ...], spec: MixtureSpec) -> None:
    if not spec.is_finite or len(lengths) != spec.num_datasets:
        return
    end = stream_end(lengths, spec.stages[0][1], spec.stopping)
    if end != spec.epoch_samples:
        raise MixtureError(
            f"the mixture was planned for epochs of {spec.epoch_samples} samples, but with these lengths "
            f"stopping={spec.stopping!r} ends after {end}. Make the mixture again for these datasets."
        )
