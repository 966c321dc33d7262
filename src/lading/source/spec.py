"""What a batch must look like, and the check.

    spec    BatchSpec({"image": Field(("B", 3, "H", "H"), "float32", low=0, high=1),
                       "label": Field(("B",), "int64", below=10)})
    check   keys ▸ shapes ▸ types ▸ NaN, Inf ▸ ranges        the first wrong thing is raised, with the row at fault

A source declares its spec (``source.spec()``); any loader can be checked
against one. Works on NumPy, torch and JAX arrays without importing a framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.errors import BatchError
from lading.identity.bill import NAME_COLUMNS
from lading.runtime.arrays import host


@dataclass(frozen=True)
class Field:
    """What one key of a batch must hold.

    Attributes:
        shape: Sizes: a number, None (any size) or a word: equal words mean equal sizes across the batch.
        dtype: Name of the element type, as in "float32"; None: any.
        low: Smallest value allowed.
        high: Largest value allowed.
        below: For ids that count from 0: how many there are.
        finite: Refuse NaN and Inf.
    """

    shape: tuple[int | str | None, ...]
    dtype: str | None = None
    low: float | None = None
    high: float | None = None
    below: int | None = None
    finite: bool = True


@dataclass(frozen=True)
class BatchSpec:
    """What a batch must hold.

    Attributes:
        fields: Every key the batch must have.
        allowed: Keys it may have besides: the names Lading adds.
    """

    fields: Mapping[str, Field]
    allowed: tuple[str, ...] = field(default=NAME_COLUMNS)


def validate_batch(
    batch: Mapping[str, Any], spec: BatchSpec, *, strict: bool = False, name_row: Callable[[int], str] | None = None
) -> bool:
    """Return True, or raise with the first thing that is wrong.

    Args:
        batch: What a loader yielded.
        spec: What it must look like.
        strict: Allow exactly the keys of the spec, not even the names Lading adds.
        name_row: Says which sample a row of the batch is, for the error.

    Raises:
        BatchError: An ``AssertionError`` that says what was expected, what was found, and in which row.

    >>> validate_batch({"x": np.zeros((4, 2), np.float32)}, BatchSpec({"x": Field(("B", 2), "float32")}))
    True
    """
    _check_keys(batch, spec, strict)
    _check_shapes(batch, spec)
    arrays = {key: host(batch[key]) for key in spec.fields}
    name_row = name_row or (lambda row: f"row {row} of the batch")
    for key, wanted in spec.fields.items():
        if wanted.finite and arrays[key].dtype.kind == "f":
            _refuse(np.isnan(arrays[key]), f"NaN detected in {key}", name_row)
            _refuse(np.isinf(arrays[key]), f"Inf detected in {key}", name_row)
    for key, wanted in spec.fields.items():
        _check_range(key, arrays[key], wanted, name_row)
    return True


def _check_keys(batch: Any, spec: BatchSpec, strict: bool) -> None:
    if not isinstance(batch, Mapping):
        raise BatchError(
            f"Batch keys mismatch. Expected: {sorted(spec.fields)}, Got: a {type(batch).__name__} without keys"
        )
    expected, found = set(spec.fields), set(batch)
    extra = found - expected - (set() if strict else set(spec.allowed))
    if extra or expected - found:
        raise BatchError(f"Batch keys mismatch. Expected: {sorted(expected)}, Got: {sorted(map(str, found))}")


def _check_shapes(batch: Mapping[str, Any], spec: BatchSpec) -> None:
    sizes: dict[str, int] = {}
    for key, wanted in spec.fields.items():
        shape = tuple(getattr(batch[key], "shape", np.shape(batch[key])))
        if len(shape) == len(wanted.shape):  # the first field that has a word's axis fixes its size
            for word, size in zip(wanted.shape, shape, strict=True):
                if isinstance(word, str):
                    sizes.setdefault(word, size)
        expected = tuple(sizes.get(s, s) if isinstance(s, str) else s for s in wanted.shape)
        fits = len(shape) == len(expected) and all(e is None or e == s for e, s in zip(expected, shape, strict=True))
        if not fits:
            raise BatchError(f"{key} shape mismatch: {shape} != ({', '.join(map(str, expected))})")
    for key, wanted in spec.fields.items():
        found = str(getattr(batch[key], "dtype", "")).removeprefix("torch.")
        if wanted.dtype is not None and found != wanted.dtype:
            raise BatchError(f"{key} dtype mismatch: {found or type(batch[key]).__name__} != {wanted.dtype}")


def _check_range(key: str, array: NDArray[Any], wanted: Field, name_row: Callable[[int], str]) -> None:
    if array.size == 0:
        return
    if wanted.below is not None:
        _refuse(array < 0, f"{key} must be non-negative", name_row)
        _refuse(array >= wanted.below, f"{key} must be < {wanted.below}, got max {array.max()}", name_row)
    if wanted.low is not None:
        _refuse(array < wanted.low, f"{key} must be >= {wanted.low:g}", name_row)
    if wanted.high is not None:
        _refuse(array > wanted.high, f"{key} must be <= {wanted.high:g}", name_row)


def _refuse(bad: NDArray[np.bool_], message: str, name_row: Callable[[int], str]) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
        raise BatchError(f"{message}: {name_row(row)}")
