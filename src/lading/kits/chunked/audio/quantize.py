"""Turn clips into integers and back: linear and mu-law quantization.

    samples ──▶ min-max scaled, each clip by itself ──▶ [mu-law] ──▶ [0, 1] ──▶ 0 .. 2**bits - 1
    decoded ◀──────────────────────────────────────────── [-1, 1] ◀── dequantize

Plain functions on NumPy arrays; a torch tensor comes back as a torch tensor.
An array of three axes ``[clips, length, channels]`` holds many clips, fewer
axes are one clip. Nothing is changed in place.

The datasets that read files are in ``torch``, opened at first use:
``QuantizedAudioDataset`` and ``ChunkedQuantizedAudioDataset``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from lading.errors import SourceError
from lading.runtime.arrays import host
from lading.runtime.fields import is_whole

MAX_BITS = 24


def quantize(x: Any, bits: int = 8) -> Any:
    """Return the level of each value in [0, 1], as int64 from 0 to ``2**bits - 1``.

    >>> quantize([0.0, 0.5, 1.0], bits=4).tolist()
    [0, 8, 15]
    """
    values = _values(x)
    return _like(np.trunc(values * (_levels(bits) - 0.01) + 0.005).astype(np.int64), x)


def dequantize(q: Any, bits: int = 8) -> Any:
    """Return the value in [-1, 1) of each level.

    >>> dequantize([0, 8, 15], bits=4).tolist()
    [-1.0, 0.0, 0.875]
    """
    return _like(_values(q) / (_levels(bits) / 2) - 1, q)


def linear_encode(samples: Any, bits: int = 8) -> Any:
    """Scale each clip to [0, 1] by its own minimum and maximum, and quantize it.

    >>> linear_encode([-0.5, 0.0, 0.5], bits=8).tolist()
    [0, 127, 255]
    """
    return _like(quantize(_minmax(_values(samples)), bits), samples)


def linear_decode(q: Any, bits: int = 8) -> Any:
    """Undo ``linear_encode``, but for the scale, which is lost: values in [-1, 1)."""
    return dequantize(q, bits)


def mu_law_encode(samples: Any, bits: int = 8) -> Any:
    """Scale each clip to [-1, 1], give quiet values more levels (mu = ``2**bits - 1``), and quantize it."""
    mu = _levels(bits) - 1
    x = 2 * _minmax(_values(samples)) - 1
    companded = np.sign(x) * np.log1p(mu * np.abs(x + 1e-8)) / np.log1p(mu)
    return _like(quantize((companded + 1) / 2, bits), samples)


def mu_law_decode(q: Any, bits: int = 8) -> Any:
    """Undo ``mu_law_encode``, but for the scale, which is lost: values in [-1, 1)."""
    mu = _levels(bits) - 1
    x = _values(dequantize(q, bits))
    return _like(np.sign(x) * np.expm1(np.abs(x) * np.log1p(mu)) / mu, q)


def q_zero(bits: int = 8) -> int:
    """Return the level of silence, ``2**(bits - 1)``."""
    return _levels(bits) >> 1


QUANTIZATIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "linear": (linear_encode, linear_decode),
    "mu-law": (mu_law_encode, mu_law_decode),
}


def _levels(bits: int) -> int:
    if not is_whole(bits, 1) or bits > MAX_BITS:
        raise SourceError(f"bits={bits!r}: expected an integer from 1 to {MAX_BITS}, 8 being usual.")
    return 1 << int(bits)


def _minmax(x: np.ndarray) -> np.ndarray:
    """Scale to [0, 1], each clip by itself."""
    if x.size == 0:
        return x
    axes = tuple(range(1, x.ndim)) if x.ndim > 2 else None
    low, high = x.min(axis=axes, keepdims=True), x.max(axis=axes, keepdims=True)
    found: np.ndarray = (x - low) / (high - low + 1e-6)
    return found


def _values(x: Any) -> np.ndarray:
    """Return values as float32 or float64, whatever holds them; the caller's array is not touched."""
    array = host(x)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)


def _like(result: np.ndarray, given: Any) -> Any:
    """Return a result in the kind of array that was given."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(given, torch.Tensor):
        return result
    tensor = torch.as_tensor(result, device=given.device)
    # torch's default is float32: what came as levels goes back as that, not as double
    return tensor.float() if result.dtype == np.float64 and given.dtype != tensor.dtype else tensor
