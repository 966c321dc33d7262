"""Batches on JAX: conversion, shapes for compiling, zeros of those shapes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lading.batch.batch import converted
from lading.errors import SourceError
from lading.runtime.arrays import beyond, framework, host


def to_jax(batch: Any, device: Any = None) -> Any:
    """Return a batch (or a dict, list or tuple of arrays) with JAX arrays in it, on a device or sharding if given."""
    return converted(batch, lambda array: _array(array, device))


def _array(array: Any, device: Any) -> Any:
    if framework(array) != "jax":
        array = refused_if_cut(host(array))
    return jnp.asarray(array) if device is None else jax.device_put(array, device)


def refused_if_cut(array: np.ndarray) -> np.ndarray:
    """Refuse what JAX would cut to 32 bits without a word."""
    if array.dtype.kind not in "iu" or array.dtype.itemsize <= 4:
        return array
    kept = jax.dtypes.canonicalize_dtype(array.dtype)
    if (found := beyond(array, kept)) is not None:
        raise SourceError(
            f"an array of {array.dtype} holds {found}, but JAX keeps only {kept}. "
            "Set jax.config.update('jax_enable_x64', True), or leave this column on the host."
        )
    return array


def structs(names: Iterable[str], *shape: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape of some fields, int32 each."""
    return {name: jax.ShapeDtypeStruct(shape, jnp.int32) for name in names}  # type: ignore[no-untyped-call]


def zeros(struct: Any) -> Any:
    """Return an array of zeros of a described shape."""
    return jnp.zeros(struct.shape, struct.dtype)
