"""Contracts that every source and every order keeps; subclass and say how to make one. And one of loaders: restored at
every step, nothing changes (``assert_resumable``).

class TestMySource(SourceContract):
    def make(self):
        return MySource(...)
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lading.identity.hashing import key64, keys64
from lading.order import Order
from lading.source.reader import reader_of


class SourceContract:
    """What a loader relies on in a source."""

    def make(self) -> Any:
        """Return a small source, the same each time."""
        raise AssertionError("say in make() how to make a source")

    def test_has_a_length_and_samples(self) -> None:
        """Every index from 0 to len - 1 gives a sample."""
        source = self.make()
        assert len(source) > 0
        assert source[0] is not None and source[len(source) - 1] is not None

    def test_reads_the_same_sample_again(self) -> None:
        """A sample depends on its index (and key), not on what was read before."""
        reader = reader_of(self.make(), "source")
        indices = np.array([0, len(reader.source) - 1])
        keys = keys64(key64(0, 0, 0), indices)
        first, again = reader.samples(indices, 0, keys), reader.samples(indices[::-1], 0, keys[::-1])
        assert all(map(same, first, again[::-1]))

    def test_columns_hold_what_samples_hold(self) -> None:
        """``take`` of some rows is the samples of these rows, in any order, repeats included."""
        reader = reader_of(self.make(), "source")
        if reader.columns is None:
            return
        indices = np.array([len(reader.source) - 1, 0, 0])
        keys = keys64(key64(0, 0, 0), indices)
        columns = reader.columns(indices, 0, keys)
        for row, sample in enumerate(reader.samples(indices, 0, keys)):
            assert _row_holds(columns, row, sample), f"row {row} of take(...) is not sample {indices[row]}"

    def test_fingerprint_is_stable_and_json(self) -> None:
        """Where a source offers a fingerprint, two of the same source agree."""
        source, twin = self.make(), self.make()
        if callable(getattr(source, "fingerprint", None)):
            assert json.dumps(source.fingerprint(), sort_keys=True) == json.dumps(twin.fingerprint(), sort_keys=True)


class OrderContract:
    """What a plan relies on in an order."""

    lengths: tuple[int, ...]

    def make(self) -> Order:
        """Return an order over ``lengths``, the same each time."""
        raise AssertionError("say in make() how to make an order")

    def test_any_part_equals_the_whole(self) -> None:
        """Random access: positions do not depend on how they are asked for."""
        order = self.make()
        dataset, index = order.samples(0, order.epoch_samples)
        for start in range(0, order.epoch_samples, 7):
            stop = min(start + 7, order.epoch_samples)
            part = order.samples(start, stop)
            assert (part[0] == dataset[start:stop]).all() and (part[1] == index[start:stop]).all()

    def test_positions_invert_samples(self) -> None:
        """Every position leads to a sample that leads back to it."""
        order = self.make()
        for epoch in range(2):
            base = epoch * order.epoch_samples
            dataset, index = order.samples(base, base + order.epoch_samples)
            for offset, (d, i) in enumerate(zip(dataset.tolist(), index.tolist(), strict=True)):
                assert 0 <= i < self.lengths[d]
                assert base + offset in order.positions(d, i, base, base + order.epoch_samples).tolist()

    def test_counts_count_samples(self) -> None:
        """``counts`` is what counting one by one gives."""
        order = self.make()
        dataset, _ = order.samples(0, order.epoch_samples)
        for position in {0, 1, order.epoch_samples // 2, order.epoch_samples}:
            expected = np.bincount(dataset[:position], minlength=len(self.lengths)).tolist()
            assert list(order.counts(position)) == expected


def _row_holds(columns: Any, row: int, sample: Any) -> bool:
    if isinstance(columns, dict):
        return set(columns) == set(sample) and all(_row_holds(columns[k], row, sample[k]) for k in columns)
    if isinstance(columns, list | tuple):
        return len(columns) == len(sample) and all(_row_holds(c, row, s) for c, s in zip(columns, sample, strict=True))
    has_nan = np.asarray(columns[:1]).dtype.kind == "f"
    return bool(np.array_equal(np.asarray(columns[row]), np.asarray(sample), equal_nan=has_nan))


def assert_resumable(make_loader: Callable[[], Any], *, rounds: int = 1, every: int = 1) -> None:
    """Assert that a loader stopped after any batch and restored in a fresh one continues as if nothing had happened.

    Args:
        make_loader: Makes the loader anew each time; it must have ``state_dict`` and ``load_state_dict``.
        rounds: Epochs (or chunks) to look at.
        every: Stop after each so many batches.

    Raises:
        AssertionError: Names the batch after which the restored loader departs.
    """
    loader = make_loader()
    straight = [batch for _ in range(rounds) for batch in loader]
    for stop in range(0, len(straight) + 1, every):
        state = json.loads(json.dumps(_state_after(make_loader(), stop)))
        again = make_loader()
        again.load_state_dict(state)
        rest = list(islice(_endless(again), len(straight) - stop))
        for offset, (expected, found) in enumerate(zip(straight[stop:], rest, strict=True)):
            if not same(expected, found):
                raise AssertionError(
                    f"stopped after {stop} batches and restored, batch {stop + offset} differs: "
                    f"expected {expected!r}, found {found!r}."
                )


def same(a: Any, b: Any) -> bool:
    """Say whether two batches hold the same values in the same containers."""
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a) and not isinstance(a, type):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    x, y = np.asarray(a), np.asarray(b)
    return x.dtype == y.dtype and x.shape == y.shape and bool((x == y).all())


def _endless(loader: Any) -> Any:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        assert not empty, "the loader gives no batches"


def _state_after(loader: Any, count: int) -> Any:
    batches = _endless(loader)
    for _ in range(count):
        next(batches)
    return loader.state_dict()
