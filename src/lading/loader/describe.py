"""What identifies a source, so that a resume on other data is refused.

By default only what costs nothing: type, length, columns and dtypes, and what
the source offers itself. Content is read on request (``"sample"``: 64 spread
samples, ``"full"``: all), because datasets may augment at random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from lading.errors import SourceError
from lading.identity import fingerprint
from lading.source.reader import Reader

MODES = (None, "sample", "full")
_SAMPLED = 64
_CHUNK = 4096


def describe(reader: Reader, mode: str | None) -> str:
    """Return the fingerprint of a source."""
    if mode not in MODES:
        raise SourceError(f"fingerprint is {mode!r}: expected None, 'sample' or 'full'.")
    source = reader.source
    parts: dict[str, Any] = {"type": type(source).__qualname__, "length": len(source), "columns": _columns(source)}
    if mode is not None:
        parts["content"] = _content(reader, mode)
    return fingerprint(parts)


def _columns(source: Any) -> Any:
    offered = getattr(source, "fingerprint", None)
    if callable(offered):
        return offered()
    if hasattr(source, "_fingerprint"):  # a Hugging Face dataset keeps its own
        return str(source._fingerprint)
    if hasattr(source, "dtype") and hasattr(source, "shape"):
        return f"{source.dtype}{tuple(source.shape[1:])}"
    tensors = getattr(source, "tensors", None)
    if isinstance(tensors, tuple):
        return [f"{t.dtype}{tuple(t.shape[1:])}" for t in tensors]
    return None


def _content(reader: Reader, mode: str) -> str:
    length = len(reader.source)
    if mode == "sample":
        chosen = np.unique(np.linspace(0, max(length - 1, 0), min(_SAMPLED, length)).astype(np.int64))
    else:
        chosen = np.arange(length, dtype=np.int64)
    state = hashlib.blake2b(digest_size=8)
    for start in range(0, len(chosen), _CHUNK):
        indices = chosen[start : start + _CHUNK]
        keys = np.zeros(len(indices), dtype=np.uint64)
        for sample in reader.samples(indices, 0, keys):
            feed(state, sample)
    return state.hexdigest()


def feed(state: Any, value: Any) -> None:
    """Feed a sample's content to a hash, the same on every machine."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            state.update(f"k{key}\0".encode())
            feed(state, value[key])
    elif isinstance(value, list | tuple):
        state.update(f"l{len(value)}\0".encode())
        for item in value:
            feed(state, item)
    elif isinstance(value, str | bytes):
        state.update(b"s" + (value.encode() if isinstance(value, str) else value) + b"\0")
    elif hasattr(value, "__dataclass_fields__"):
        feed(state, {name: getattr(value, name) for name in value.__dataclass_fields__})
    else:
        array = np.ascontiguousarray(value.numpy(force=True) if hasattr(value, "numpy") else value)
        if array.dtype.kind == "O":
            state.update(repr(value).encode())
            return
        state.update(f"{array.dtype.str}{array.shape}\0".encode())
        state.update(array.tobytes())
