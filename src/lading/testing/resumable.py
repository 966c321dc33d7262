"""Restore a loader at every step and see that nothing changes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np


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
